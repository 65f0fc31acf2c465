package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactions of the crash test. Transaction n has 1 + n mod 8 records, the i-th in partition (n + i) mod partitions, with
// the value "n:i:padding". Every fifth is aborted. A line of the list is "begun n", "committed n" or "aborted n", the latter
// two when the broker has said so.

func recordsOf(number int) int { return 1 + number%8 }

func isAborted(number int) bool { return number%5 == 3 }

func crashTransactions(s *suite, phase string, rest []string) {
	topic := rest[0]
	partitions := value(strconv.Atoi(rest[1]))
	if phase == "crash-transactions" {
		crashTransactionsLoad(s, topic, partitions, rest[2])
	} else {
		crashTransactionsCheck(s, topic, int32(partitions), rest[2])
	}
}

// crashTransactionsLoad works until standard input is closed.
func crashTransactionsLoad(s *suite, topic string, partitions int, list string) {
	file := value(os.Create(list))
	stopped := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stopped)
	}()
	open := func() *kgo.Client {
		return s.client(kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(time.Millisecond), kgo.RecordRetries(1<<30), kgo.RetryTimeout(time.Minute),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	}
	client := open()
	for number := 0; ; number++ {
		select {
		case <-stopped:
			client.Close()
			must(file.Close())
			return
		default:
		}
		value(fmt.Fprintf(file, "begun %d\n", number))
		outcome, err := oneTransaction(client, partitions, number)
		if err != nil {
			// The next producer ends what this one left open.
			fmt.Fprintf(os.Stderr, "transaction %d: %v\n", number, err)
			client.Close()
			client = open()
			continue
		}
		value(fmt.Fprintf(file, "%s %d\n", outcome, number))
	}
}

func oneTransaction(client *kgo.Client, partitions, number int) (string, error) {
	limit, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return "", err
	}
	failures := make(chan error, recordsOf(number))
	pad := strings.Repeat("x", rand.IntN(300))
	for i := range recordsOf(number) {
		record := kgo.StringRecord(fmt.Sprintf("%d:%d:%s", number, i, pad))
		record.Partition = int32((number + i) % partitions)
		client.Produce(limit, record, func(_ *kgo.Record, err error) { failures <- err })
	}
	if err := client.Flush(limit); err != nil {
		return "", err
	}
	commit := !isAborted(number)
	for range recordsOf(number) {
		if err := <-failures; err != nil {
			fmt.Fprintf(os.Stderr, "transaction %d is aborted: %v\n", number, err)
			commit = false
		}
	}
	if err := client.EndTransaction(limit, kgo.TransactionEndTry(commit)); err != nil {
		return "", err
	}
	if commit {
		return "committed", nil
	}
	return "aborted", nil
}

// outcomesOf reads a list: the last word about each transaction.
func outcomesOf(list string) map[int]string {
	file := value(os.Open(list))
	defer file.Close()
	outcomes := map[int]string{}
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		word, number, _ := strings.Cut(scanner.Text(), " ")
		outcomes[value(strconv.Atoi(number))] = word
	}
	must(scanner.Err())
	return outcomes
}

// committedRecords reads a whole topic: one more record in each partition, which is in no transaction, is the end. It is not
// reached while a transaction is open.
func committedRecords(s *suite, topic string, partitions int32) []*kgo.Record {
	plain := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer plain.Close()
	for partition := range partitions {
		end := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("end")}
		must(plain.ProduceSync(background, end).FirstErr())
	}
	client := s.direct(topic, partitions, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer client.Close()
	limit, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	var records []*kgo.Record
	for left := partitions; left > 0; {
		fetches := client.PollFetches(limit)
		check(limit.Err() == nil, "%d partitions are not read to their ends in a minute, after %d records", left, len(records))
		must(fetches.Err())
		for _, record := range fetches.Records() {
			if string(record.Value) == "end" {
				left--
			} else {
				records = append(records, record)
			}
		}
	}
	return records
}

// crashTransactionsCheck compares what a reader of committed records sees with the list.
func crashTransactionsCheck(s *suite, topic string, partitions int32, list string) {
	outcomes := outcomesOf(list)
	counts := map[string]int{}
	for _, outcome := range outcomes {
		counts[outcome]++
	}
	visible := map[int]int{}
	var strange, disordered []string
	records := 0
	s.run("every committed record can be read", func() {
		type place struct{ number, index int }
		last := map[int32]place{}
		for _, record := range committedRecords(s, topic, partitions) {
			records++
			fields := strings.SplitN(string(record.Value), ":", 3)
			at := place{value(strconv.Atoi(fields[0])), value(strconv.Atoi(fields[1]))}
			where := fmt.Sprintf("%d:%d at %d/%d", at.number, at.index, record.Partition, record.Offset)
			if _, begun := outcomes[at.number]; !begun || record.Partition != int32(at.number+at.index)%partitions {
				strange = append(strange, where)
			}
			before, there := last[record.Partition]
			if there && (at.number < before.number || at.number == before.number && at.index <= before.index) {
				disordered = append(disordered, fmt.Sprintf("%s, after %v", where, before))
			}
			last[record.Partition] = at
			visible[at.number]++
		}
	})
	var parts, lost, aborted []string
	unknown := 0
	for number, outcome := range outcomes {
		found := visible[number]
		text := fmt.Sprintf("%d of %d records of transaction %d", found, recordsOf(number), number)
		if found != 0 && found != recordsOf(number) {
			parts = append(parts, text)
		}
		switch {
		case outcome == "committed" && found != recordsOf(number):
			lost = append(lost, text)
		case outcome == "aborted" && found != 0:
			aborted = append(aborted, text)
		case outcome == "begun" && found != 0:
			unknown++
		}
	}
	s.run("transactions were committed and aborted", func() {
		check(counts["committed"] > 0 && counts["aborted"] > 0, "the list has %v", counts)
	})
	s.run("every transaction is visible whole or not at all", func() { none(parts, "in part") })
	s.run("every commit that was acknowledged is visible", func() { none(lost, "lost") })
	s.run("no aborted record is visible", func() { none(aborted, "visible") })
	s.run("each partition is in order, and nothing is there twice", func() { none(disordered, "out of order") })
	s.run("every record is one that was sent", func() { none(strange, "elsewhere") })
	fmt.Fprintf(os.Stderr, "%s: %d transactions committed, %d aborted, %d unknown (%d of these visible); %d records\n",
		topic, counts["committed"], counts["aborted"], counts["begun"], unknown, records)
}
