package main

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// takeover writes data that two brokers must agree on if one opens the other's directory.
func takeover(s *suite, phase string) {
	switch phase {
	case "fill":
		s.createTopic("kept-large", 2)
		s.createTopic("kept-compacted", 1, "cleanup.policy", "compact", "segment.bytes", "1048576")
		s.createTopic("kept-deleted-records", 1)
		s.createTopic("kept-gone", 1)
		large(s, "kept-large", 0, 3000)
		large(s, "kept-large", 1, 1500)
		s.fill("kept-compacted", 0, 1, 200)
		s.fill("kept-deleted-records", 0, 1, 100)
		var before kadm.Offsets
		before.AddOffset("kept-deleted-records", 0, 60, -1)
		must(value(s.admin.DeleteRecords(background, before)).Error())
		responses := value(s.admin.UpdatePartitions(background, 3, "kept-large"))
		must(responses.Error())
		must(firstError(s.admin.DeleteTopics(background, "kept-gone")))
		for i := range 20 {
			commit(s, "kept-group-"+strconv.Itoa(i), "kept-large", int64(100+i))
		}
		// A group of real members, with a generation of its own.
		consume(s, "kept-live", "kept-compacted", 200)
	case "more":
		large(s, "kept-large", 0, 500)
		s.fill("kept-compacted", 0, 1, 100)
		commit(s, "kept-group-0", "kept-large", 777)
		commit(s, "kept-new-group", "kept-large", 5)
		consume(s, "kept-live", "kept-compacted", 100)
		s.createTopic("kept-created-later", 2)
		s.fill("kept-created-later", -1, 2, 50)
		must(firstError(s.admin.DeleteTopics(background, "kept-deleted-records")))
		_, err := s.admin.CreateTopic(background, 1, 1, nil, "kept-large")
		is(kerr.TopicAlreadyExists, err)
	case "again":
		large(s, "kept-large", 2, 500)
		s.fill("kept-compacted", 0, 1, 100)
		consume(s, "kept-live", "kept-compacted", 100)
		offset, found := value(s.admin.FetchOffsets(background, "kept-group-0")).Lookup("kept-large", 0)
		check(found, "the offset of kept-group-0 is lost")
		same(int64(777), offset.At, "offset of kept-group-0")
		s.createTopic("kept-created-last", 1)
		s.fill("kept-created-last", 0, 1, 10)
	}
}

// large writes kilobyte records that fill more than one segment, from an idempotent producer.
func large(s *suite, topic string, partition int32, count int) {
	client := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), compression("none"),
		kgo.ProducerBatchMaxBytes(64<<10))
	defer client.Close()
	var records []*kgo.Record
	for i := range count {
		text := make([]byte, 1000)
		for j := range text {
			text[j] = 'a' + byte((i*31+j*7)%26)
		}
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Key: []byte(strconv.Itoa(i)), Value: text})
	}
	must(client.ProduceSync(background, records...).FirstErr())
}

func commit(s *suite, group, topic string, offset int64) {
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: offset, LeaderEpoch: -1, Metadata: "note " + group})
	must(s.admin.CommitAllOffsets(background, group, offsets))
}

// consume joins the group, reads count records from its committed position, and commits.
func consume(s *suite, group, topic string, count int) {
	client := s.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second))
	defer client.Close()
	take(client, count)
	must(client.CommitUncommittedOffsets(background))
}
