package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Records that every client writes and every client reads. Record i of a topic goes to partition i % 3; key null
// when i % 5 == 0, else key-i; value null when i % 7 == 0, else value-i- and i % 50 times abcdefghij; headers
// writer, i and nothing (null); timestamp 1,700,000,000,000 + i.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

const (
	crossPartitions = 3
	crossCount      = 600
	firstTimestamp  = 1_700_000_000_000
)

func crossTopic(writer, codec string) string { return "cross-" + writer + "-" + codec }

func compression(codec string) kgo.Opt {
	return kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[codec])
}

func crossKey(i int) []byte {
	if i%5 == 0 {
		return nil
	}
	return []byte("key-" + strconv.Itoa(i))
}

func crossValue(i int) []byte {
	if i%7 == 0 {
		return nil
	}
	return []byte("value-" + strconv.Itoa(i) + "-" + strings.Repeat("abcdefghij", i%50))
}

func writeRecords(s *suite, topic, codec string) {
	// The timestamps are older than any default retention.
	s.createTopic(topic, crossPartitions, "retention.ms", "-1")
	client := s.client(compression(codec), kgo.ProducerLinger(50*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	var records []*kgo.Record
	for i := range crossCount {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: int32(i % crossPartitions), Timestamp: time.UnixMilli(firstTimestamp + int64(i)),
			Key: crossKey(i), Value: crossValue(i),
			Headers: []kgo.RecordHeader{
				{Key: "writer", Value: []byte("franz-go")}, {Key: "i", Value: []byte(strconv.Itoa(i))}, {Key: "nothing"},
			},
		})
	}
	must(client.ProduceSync(background, records...).FirstErr())
	for i, record := range records {
		same(int64(i/crossPartitions), record.Offset, "offset of record "+strconv.Itoa(i))
	}
}

func readRecords(s *suite, topic, writer string) {
	client := s.direct(topic, crossPartitions)
	defer client.Close()
	next := []int{0, 1, 2}
	for _, record := range take(client, crossCount) {
		i := next[record.Partition]
		next[record.Partition] += crossPartitions
		of := " of record " + strconv.Itoa(i)
		same(int64(i/crossPartitions), record.Offset, "offset"+of)
		same(crossKey(i), record.Key, "key"+of)
		same(crossValue(i), record.Value, "value"+of)
		same(int64(firstTimestamp+i), record.Timestamp.UnixMilli(), "timestamp"+of)
		same([]kgo.RecordHeader{
			{Key: "writer", Value: []byte(writer)}, {Key: "i", Value: []byte(strconv.Itoa(i))}, {Key: "nothing"},
		}, record.Headers, "headers"+of)
	}
}
