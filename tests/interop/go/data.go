package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func dataCases(s *suite) {
	s.run("acks 0, 1 and all", func() { acks(s) })
	s.run("idempotent producer", func() { idempotent(s) })
	s.run("offsets by time", func() { offsetsByTime(s) })
	s.run("list offsets", func() { listOffsets(s) })
	s.run("read committed", func() { readCommitted(s) })
	s.run("many partitions", func() { manyPartitions(s) })
	s.run("small fetch limits", func() { smallFetchLimits(s) })
	s.run("long poll", func() { longPoll(s) })
	s.run("record too large", func() { recordTooLarge(s) })
	s.run("unknown topic", func() { unknownTopic(s) })
	s.run("auto-creation", func() { autoCreation(s) })
	s.run("log append time", func() { logAppendTime(s) })
	s.run("delete and recreate under load", func() { recreateUnderLoad(s) })
}

func acks(s *suite) {
	s.createTopic("go-acks", 1)
	for _, level := range []struct {
		name string
		acks kgo.Acks
	}{{"0", kgo.NoAck()}, {"1", kgo.LeaderAck()}, {"all", kgo.AllISRAcks()}} {
		client := s.client(kgo.RequiredAcks(level.acks), kgo.DisableIdempotentWrite())
		for i := range 100 {
			record := &kgo.Record{Topic: "go-acks", Value: []byte(level.name + "-" + strconv.Itoa(i))}
			client.Produce(background, record, nil)
		}
		must(client.Flush(background))
		client.Close()
		// franz-go closes an acks=0 connection without waiting for data in flight.
		eventually("all records of acks="+level.name+" are there", func() bool {
			ends := value(s.admin.ListEndOffsets(background, "go-acks"))
			end, _ := ends.Lookup("go-acks", 0)
			return end.Offset == map[string]int64{"0": 100, "1": 200, "all": 300}[level.name]
		})
	}
	consumer := s.direct("go-acks", 1)
	defer consumer.Close()
	records := take(consumer, 300)
	same("0-0", string(records[0].Value), "first record")
	same("all-99", string(records[299].Value), "last record")
}

func idempotent(s *suite) {
	s.createTopic("go-idempotent", 4)
	const count = 20_000
	client := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1024),
		kgo.ProducerLinger(0), kgo.MaxBufferedRecords(count))
	var failed atomic.Int64
	for i := range count {
		record := &kgo.Record{Topic: "go-idempotent", Partition: int32(i % 4), Value: []byte(strconv.Itoa(i))}
		client.Produce(background, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
			}
		})
	}
	must(client.Flush(background))
	client.Close()
	same(int64(0), failed.Load(), "failed records")
	consumer := s.direct("go-idempotent", 4)
	defer consumer.Close()
	next := []int{0, 1, 2, 3}
	for _, record := range take(consumer, count) {
		same(strconv.Itoa(next[record.Partition]), string(record.Value), "order")
		next[record.Partition] += 4
	}
}

// fillTimes writes timestamps 1,000,000 + 10 i, except record 50, which is the newest of all.
func fillTimes(s *suite, topic string) {
	s.createTopic(topic, 1, "retention.ms", "-1")
	client := s.client()
	defer client.Close()
	for i := range 100 {
		timestamp := int64(1_000_000 + 10*i)
		if i == 50 {
			timestamp = 5_000_000
		}
		record := &kgo.Record{Topic: topic, Timestamp: time.UnixMilli(timestamp), Value: []byte("v")}
		must(client.ProduceSync(background, record).FirstErr())
	}
}

func at(offsets kadm.ListedOffsets, topic string) kadm.ListedOffset {
	offset, found := offsets.Lookup(topic, 0)
	check(found, "no offset of %s", topic)
	must(offset.Err)
	return offset
}

func offsetsByTime(s *suite) {
	fillTimes(s, "go-times")
	for _, expected := range []struct{ asked, offset, timestamp int64 }{
		{0, 0, 1_000_000}, {1_000_200, 20, 1_000_200}, {1_000_205, 21, 1_000_210}, {2_000_000, 50, 5_000_000},
	} {
		found := at(value(s.admin.ListOffsetsAfterMilli(background, expected.asked, "go-times")), "go-times")
		same(expected.offset, found.Offset, "offset")
		same(expected.timestamp, found.Timestamp, "timestamp")
	}
	// kadm returns the end offset if no record is that new.
	found := at(value(s.admin.ListOffsetsAfterMilli(background, 5_000_001, "go-times")), "go-times")
	same(int64(100), found.Offset, "beyond the newest")
}

func listOffsets(s *suite) {
	fillTimes(s, "go-list-offsets")
	same(int64(0), at(value(s.admin.ListStartOffsets(background, "go-list-offsets")), "go-list-offsets").Offset, "start")
	same(int64(100), at(value(s.admin.ListEndOffsets(background, "go-list-offsets")), "go-list-offsets").Offset, "end")
	committed := value(s.admin.ListCommittedOffsets(background, "go-list-offsets"))
	same(int64(100), at(committed, "go-list-offsets").Offset, "last stable offset")
	newest := at(value(s.admin.ListMaxTimestampOffsets(background, "go-list-offsets")), "go-list-offsets")
	same(int64(50), newest.Offset, "offset of the greatest timestamp")
	same(int64(5_000_000), newest.Timestamp, "greatest timestamp")
}

func readCommitted(s *suite) {
	s.createTopic("go-committed", 1)
	s.fill("go-committed", 0, 1, 500)
	consumer := s.direct("go-committed", 1, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer consumer.Close()
	take(consumer, 500)
}

func manyPartitions(s *suite) {
	const count = 150
	s.createTopic("go-many", count)
	producer := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	consumer := s.direct("go-many", count)
	defer consumer.Close()
	// Rounds over one fetch session (KIP-227).
	for round := range 3 {
		for i := range count {
			text := strconv.Itoa(round) + "-" + strconv.Itoa(i)
			producer.Produce(background, &kgo.Record{Topic: "go-many", Partition: int32(i), Value: []byte(text)}, nil)
		}
		must(producer.Flush(background))
		seen := map[int32]string{}
		for _, record := range take(consumer, count) {
			seen[record.Partition] = string(record.Value)
		}
		for i := range count {
			same(strconv.Itoa(round)+"-"+strconv.Itoa(i), seen[int32(i)], "partition "+strconv.Itoa(i))
		}
	}
	removed := []int32{}
	for i := range int32(120) {
		removed = append(removed, i)
	}
	consumer.RemoveConsumePartitions(map[string][]int32{"go-many": removed})
	for i := range count {
		producer.Produce(background, &kgo.Record{Topic: "go-many", Partition: int32(i), Value: []byte("last")}, nil)
	}
	must(producer.Flush(background))
	take(consumer, 30)
}

func smallFetchLimits(s *suite) {
	s.createTopic("go-limits", 2)
	client := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4096),
		kgo.ProducerLinger(5*time.Millisecond))
	for i := range 400 {
		record := &kgo.Record{Topic: "go-limits", Partition: int32(i % 2), Value: []byte(strings.Repeat("x", 1000))}
		client.Produce(background, record, nil)
	}
	must(client.Flush(background))
	client.Close()
	// Each limit is smaller than one batch: the first batch must be returned anyway, or consumers make no progress.
	consumer := s.direct("go-limits", 2, kgo.FetchMaxBytes(150), kgo.FetchMaxPartitionBytes(100))
	defer consumer.Close()
	take(consumer, 400)
}

func longPoll(s *suite) {
	s.createTopic("go-poll", 1)
	producer := s.client()
	defer producer.Close()
	consumer := s.direct("go-poll", 1, kgo.FetchMaxWait(25*time.Second))
	defer consumer.Close()
	short, cancel := context.WithTimeout(background, 1500*time.Millisecond)
	defer cancel()
	same(0, len(consumer.PollFetches(short).Records()), "records of an empty topic")
	must(producer.ProduceSync(background, &kgo.Record{Topic: "go-poll", Value: []byte("wake up")}).FirstErr())
	// The append must complete the waiting fetch, not its own timeout of 25 seconds.
	long, stop := context.WithTimeout(background, 12*time.Second)
	defer stop()
	same(1, len(consumer.PollFetches(long).Records()), "records after the append")
}

func recordTooLarge(s *suite) {
	s.createTopic("go-large", 1, "max.message.bytes", "2000")
	client := s.client(compression("none"))
	defer client.Close()
	large := &kgo.Record{Topic: "go-large", Value: []byte(strings.Repeat("x", 3000))}
	is(kerr.MessageTooLarge, client.ProduceSync(background, large).FirstErr())
	next := &kgo.Record{Topic: "go-large", Value: []byte("small")}
	must(client.ProduceSync(background, next).FirstErr())
	same(int64(0), next.Offset, "offset after the refused record")
}

func unknownTopic(s *suite) {
	topics := value(s.admin.ListTopics(background, "go-no-such"))
	is(kerr.UnknownTopicOrPartition, topics["go-no-such"].Err)
	client := s.client(kgo.UnknownTopicRetries(1))
	defer client.Close()
	record := &kgo.Record{Topic: "go-no-such", Value: []byte("v")}
	is(kerr.UnknownTopicOrPartition, client.ProduceSync(background, record).FirstErr())
	_, err := s.admin.CreateTopic(background, 1, 1, nil, "../x")
	is(kerr.InvalidTopicException, err)

	s.createTopic("go-range", 1)
	s.fill("go-range", 0, 1, 10)
	consumer := s.client(kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{"go-range": {0: kgo.NewOffset().At(1000)}}))
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(background, 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if err := consumer.PollFetches(ctx).Err(); err != nil {
			is(kerr.OffsetOutOfRange, err)
			return
		}
	}
	panic(errors.New("offset 1000 of 10 was served"))
}

func autoCreation(s *suite) {
	client := s.client(kgo.AllowAutoTopicCreation())
	defer client.Close()
	record := &kgo.Record{Topic: "go-auto-created", Value: []byte("v")}
	must(client.ProduceSync(background, record).FirstErr())
	topics := value(s.admin.ListTopics(background, "go-auto-created"))
	same(1, len(topics["go-auto-created"].Partitions), "partitions (num.partitions=1)")
}

func logAppendTime(s *suite) {
	s.createTopic("go-append-time", 1, "message.timestamp.type", "LogAppendTime")
	before := time.Now().UnixMilli()
	client := s.client(compression("lz4"))
	defer client.Close()
	record := &kgo.Record{Topic: "go-append-time", Timestamp: time.UnixMilli(1000), Value: []byte("v")}
	must(client.ProduceSync(background, record).FirstErr())
	consumer := s.direct("go-append-time", 1)
	defer consumer.Close()
	read := take(consumer, 1)[0]
	same(int8(1), read.Attrs.TimestampType(), "timestamp type")
	check(read.Timestamp.UnixMilli() >= before-1000, "the record carries %v", read.Timestamp)
}

func recreateUnderLoad(s *suite) {
	const topic = "go-recreated"
	s.createTopic(topic, 2)
	var stop atomic.Bool
	var acknowledged atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		client := s.client(kgo.AllowAutoTopicCreation(), kgo.RecordDeliveryTimeout(3*time.Second),
			kgo.MetadataMinAge(250*time.Millisecond), kgo.MaxBufferedRecords(1000))
		for !stop.Load() {
			client.Produce(background, &kgo.Record{Topic: topic, Value: []byte("v")}, func(_ *kgo.Record, err error) {
				if err == nil {
					acknowledged.Add(1)
				} else {
					// A producer keeps the id of a known topic until it is purged.
					go client.PurgeTopicsFromProducing(topic)
				}
			})
			time.Sleep(100 * time.Microsecond)
		}
		// franz-go closes without waiting for requests in flight, which would land after the end is read.
		must(client.Flush(background))
		client.Close()
	}()
	for round := range 3 {
		before := acknowledged.Load()
		eventually("records are acknowledged in round "+strconv.Itoa(round), func() bool {
			return acknowledged.Load() > before+100
		})
		old := value(s.admin.ListTopics(background, topic))[topic].ID
		must(firstError(s.admin.DeleteTopics(background, topic)))
		eventually("the topic exists again", func() bool {
			_, err := s.admin.CreateTopic(background, 2, 1, nil, topic)
			if err != nil {
				is(kerr.TopicAlreadyExists, err)
			}
			now := value(s.admin.ListTopics(background, topic))[topic]
			return now.Err == nil && now.ID != old
		})
	}
	stop.Store(true)
	<-done
	// Whatever the races were, the last incarnation is complete: from 0 to its end without a gap.
	end := at(value(s.admin.ListEndOffsets(background, topic)), topic).Offset
	consumer := s.direct(topic, 1)
	defer consumer.Close()
	for i, record := range take(consumer, int(end)) {
		same(int64(i), record.Offset, "offset")
	}
}

func firstError(responses kadm.DeleteTopicResponses, err error) error {
	if err != nil {
		return err
	}
	return responses.Error()
}
