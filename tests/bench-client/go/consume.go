package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type ledger struct {
	next                       []int64
	records, bytes, disordered int64
	first                      time.Time
}

// consume reads every partition from beginning to end: once to warm up, then in measured passes.
func consume(a arguments) {
	partitions, records, passes := a.number("partitions"), a.number("records"), a.number("passes")
	beginning := map[string]map[int32]kgo.Offset{a["topic"]: {}}
	rewind := map[string]map[int32]kgo.EpochOffset{a["topic"]: {}}
	for partition := range int32(partitions) {
		beginning[a["topic"]][partition] = kgo.NewOffset().AtStart()
		rewind[a["topic"]][partition] = kgo.EpochOffset{Epoch: -1, Offset: 0}
	}
	client := connect(a, kgo.ConsumePartitions(beginning))
	disordered := read(client, partitions, records).disordered
	sayAndWait("ready")
	begun := time.Now()
	var received, bytes int64
	var toFirst float64
	for range passes {
		rewound := time.Now()
		client.SetOffsets(rewind)
		l := read(client, partitions, records)
		received, bytes, disordered = received+l.records, bytes+l.bytes, disordered+l.disordered
		toFirst += l.first.Sub(rewound).Seconds()
	}
	seconds := time.Since(begun).Seconds()
	sayAndWait("done")
	value(fmt.Println(string(value(json.Marshal(map[string]any{
		"seconds": seconds, "seconds_to_first": toFirst, "received": received, "expected": records * passes,
		"value_bytes": bytes, "disordered": disordered, "version": version(),
	})))))
}

func read(client *kgo.Client, partitions, records int64) *ledger {
	l := &ledger{next: make([]int64, partitions)}
	for l.records < records {
		fetches := client.PollFetches(background)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if l.records == 0 {
				l.first = time.Now()
			}
			if l.next[record.Partition] != record.Offset {
				l.disordered++
			}
			l.next[record.Partition] = record.Offset + 1
			l.records++
			l.bytes += int64(len(record.Value))
		})
	}
	return l
}
