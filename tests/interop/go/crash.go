package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A record of the crash test: the key is one of 16 per partition, the value is "key:number" with consecutive numbers per
// key. A line of the list of acknowledgements is "partition offset key:number".
const keysPerPartition = 16

func crash(s *suite, phase string, rest []string) {
	topic := rest[0]
	partitions := value(strconv.Atoi(rest[1]))
	switch phase {
	case "crash-create":
		s.run(phase, func() { s.createTopic(topic, int32(partitions)) })
	case "crash-load":
		crashLoad(s, topic, partitions, rest[2])
	case "crash-check":
		crashCheck(s, topic, int32(partitions), rest[2])
	}
}

// crashLoad produces until standard input is closed, then waits for records in flight.
func crashLoad(s *suite, topic string, partitions int, list string) {
	file := value(os.Create(list))
	var lock sync.Mutex
	failed := 0
	client := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordRetries(1<<30), kgo.MaxBufferedRecords(2000),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.ProduceRequestTimeout(5*time.Second), kgo.RetryTimeout(time.Minute))
	stopped := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stopped)
	}()
	numbers := make([]int, partitions*keysPerPartition)
	pad := strings.Repeat("x", 300)
	for running := true; running; {
		at := rand.IntN(len(numbers))
		key := "k" + strconv.Itoa(at)
		text := key + ":" + strconv.Itoa(numbers[at])
		numbers[at]++
		record := &kgo.Record{Topic: topic, Partition: int32(at % partitions), Key: []byte(key),
			Value: []byte(text + ":" + pad[:rand.IntN(len(pad))])}
		client.Produce(background, record, func(record *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failed++
				fmt.Fprintf(os.Stderr, "not acknowledged: %s: %v\n", text, err)
				return
			}
			_, err = fmt.Fprintf(file, "%d %d %s\n", record.Partition, record.Offset, text)
			must(err)
		})
		select {
		case <-stopped:
			running = false
		case <-time.After(100 * time.Microsecond):
		}
	}
	must(client.Flush(background))
	client.Close()
	must(file.Close())
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "%d records failed\n", failed)
		os.Exit(1)
	}
}

// crashCheck compares the log with the list.
func crashCheck(s *suite, topic string, partitions int32, list string) {
	type place struct {
		partition int32
		offset    int64
	}
	stored := map[string]place{}
	var doubled, disordered []string
	s.run("every record can be read", func() {
		ends := value(s.admin.ListEndOffsets(background, topic))
		count := 0
		ends.Each(func(end kadm.ListedOffset) { must(end.Err); count += int(end.Offset) })
		client := s.direct(topic, partitions)
		defer client.Close()
		last := map[string]int{}
		next := map[int32]int64{}
		for _, record := range take(client, count) {
			same(next[record.Partition], record.Offset, "offset in partition "+strconv.Itoa(int(record.Partition)))
			next[record.Partition]++
			fields := strings.SplitN(string(record.Value), ":", 3)
			text := fields[0] + ":" + fields[1]
			if before, there := stored[text]; there {
				doubled = append(doubled, fmt.Sprintf("%s at %v and %d/%d", text, before, record.Partition, record.Offset))
			}
			stored[text] = place{record.Partition, record.Offset}
			number := value(strconv.Atoi(fields[1]))
			if expected := last[fields[0]]; number != expected {
				disordered = append(disordered, fmt.Sprintf("%s at %d/%d, expected number %d", text, record.Partition, record.Offset, expected))
			}
			last[fields[0]] = number + 1
		}
	})
	lines := 0
	s.run("nothing acknowledged is lost", func() {
		file := value(os.Open(list))
		defer file.Close()
		scanner := bufio.NewScanner(file)
		var missing []string
		for scanner.Scan() {
			var partition int32
			var offset int64
			var text string
			value(fmt.Sscanf(scanner.Text(), "%d %d %s", &partition, &offset, &text))
			lines++
			// librdkafka and Java report -1 for a batch that the broker recognised as a duplicate.
			found, there := stored[text]
			if !there || (offset >= 0 && found != place{partition, offset}) {
				missing = append(missing, scanner.Text())
			}
		}
		must(scanner.Err())
		check(lines > 0, "the list is empty")
		none(missing, "lost or elsewhere")
	})
	s.run("nothing is there twice", func() { none(doubled, "twice") })
	s.run("each key is in order", func() { none(disordered, "out of order") })
	fmt.Fprintf(os.Stderr, "%s: %d acknowledged, %d stored\n", topic, lines, len(stored))
}

func none(found []string, what string) {
	if len(found) > 0 {
		panic(errors.New(strconv.Itoa(len(found)) + " " + what + ", the first: " + found[0]))
	}
}
