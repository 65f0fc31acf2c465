package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const slow = -1

// answers has the outcomes of one phase's records.
type answers struct {
	acknowledged, slowAcknowledged, failed, answeredTwice atomic.Int64
	begun                                                 time.Time
	answeredAt                                            []atomic.Int64
	callbackSleep                                         time.Duration
}

var firstError atomic.Value

func (r *answers) add(slot int64, err error) {
	if err != nil {
		r.failed.Add(1)
		firstError.CompareAndSwap(nil, err.Error())
		return
	}
	if slot == slow {
		if r.callbackSleep > 0 {
			time.Sleep(r.callbackSleep)
		}
		r.slowAcknowledged.Add(1)
		return
	}
	if r.answeredAt != nil && r.answeredAt[slot].Swap(max(int64(time.Since(r.begun)), 1)) != 0 {
		r.answeredTwice.Add(1)
	}
	r.acknowledged.Add(1)
}

type load struct {
	client                   *kgo.Client
	payloads                 [][]byte
	threads, partitions      int64
	rate, slowRate           float64
	isNull                   bool
	topic, slowTopic, output string
	callbackSleep            time.Duration
	answersBy                string
}

func produce(a arguments) {
	options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks())}
	switch a["compression"] {
	case "none":
		options = append(options, kgo.ProducerBatchCompression(kgo.NoCompression()))
	case "lz4":
		options = append(options, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	}
	if a["batch"] != "" {
		options = append(options, kgo.ProducerBatchMaxBytes(int32(a.number("batch"))))
	}
	if a["linger"] != "" {
		options = append(options, kgo.ProducerLinger(time.Duration(a.number("linger"))*time.Millisecond))
	}
	if a["buffer"] != "" {
		// Bytes are the limit, as in the other clients; the default is 10,000 records and any number of bytes.
		options = append(options, kgo.MaxBufferedBytes(int(a.number("buffer"))), kgo.MaxBufferedRecords(1<<30))
	}
	all := value(os.ReadFile(a["payloads"]))
	bytes := int(a.number("bytes"))
	l := &load{
		client: connect(a, options...), threads: a.number("threads"), partitions: a.number("partitions"),
		rate: a.numberOr("rate", 0), slowRate: a.numberOr("slow_rate", 0), isNull: a["null"] == "1", topic: a["topic"],
		slowTopic: a["slow_topic"], output: a["latency_file"],
		callbackSleep: time.Duration(a.numberOr("callback_sleep_ms", 0)) * time.Millisecond, answersBy: a["answers"],
	}
	for at := 0; at < len(all); at += bytes {
		l.payloads = append(l.payloads, all[at:at+bytes])
	}
	warmup, records := a.number("warmup"), a.number("records")
	warm := l.answers(warmup)
	l.phase(warmup, warm)
	sayAndWait("ready")
	measured := l.answers(records)
	seconds, slowSent, late := l.phase(records, measured)
	sayAndWait("done")
	if l.output != "" {
		l.writeLatencies(measured, late)
	}
	text, _ := firstError.Load().(string)
	value(fmt.Println(string(value(json.Marshal(map[string]any{
		"seconds": seconds, "sent": records, "acknowledged": measured.acknowledged.Load(), "failed": measured.failed.Load(),
		"answered_twice": measured.answeredTwice.Load(), "warmup_acknowledged": warm.acknowledged.Load(),
		"slow_sent": slowSent, "first_error": text, "version": version(),
	})))))
}

func version() string {
	for _, module := range value2(debug.ReadBuildInfo()).Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return "franz-go " + module.Version + ", " + runtime.Version()
		}
	}
	return "franz-go"
}

func value2[T any](v T, ok bool) T {
	if !ok {
		panic("no build information")
	}
	return v
}

func (l *load) answers(records int64) *answers {
	r := &answers{callbackSleep: l.callbackSleep}
	if l.output != "" {
		r.answeredAt = make([]atomic.Int64, records)
	}
	r.begun = time.Now()
	return r
}

func (l *load) phase(records int64, r *answers) (seconds float64, slowSent int64, late [][]int64) {
	var senders sync.WaitGroup
	late = make([][]int64, l.threads)
	for thread := range l.threads {
		senders.Add(1)
		go func() {
			defer senders.Done()
			late[thread] = l.send(thread, records, r)
		}()
	}
	var isOver atomic.Bool
	slowDone := make(chan int64, 1)
	if l.slowTopic != "" {
		go func() { slowDone <- l.sendSlow(r, &isOver) }()
	} else {
		slowDone <- 0
	}
	senders.Wait()
	must(l.client.Flush(background))
	for r.acknowledged.Load()+r.failed.Load() < records {
		time.Sleep(100 * time.Microsecond)
	}
	seconds = time.Since(r.begun).Seconds()
	isOver.Store(true)
	slowSent = <-slowDone
	must(l.client.Flush(background))
	for r.slowAcknowledged.Load() < slowSent {
		time.Sleep(time.Millisecond)
	}
	return seconds, slowSent, late
}

func (l *load) send(thread, records int64, r *answers) (late []int64) {
	if l.rate > 0 {
		// The loop then sleeps in system calls and would block other goroutines of its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	mask := int64(len(l.payloads) - 1)
	// One promise for all records; without a latency file no slot is needed.
	handler := func(_ *kgo.Record, err error) { r.add(0, err) }
	var waiting queue
	for number := thread; number < records; number += l.threads {
		if l.rate > 0 {
			late = append(late, waitUntil(r.begun.Add(time.Duration(float64(number)*1e9/l.rate))))
		}
		payload := l.payloads[number&mask]
		if l.isNull {
			r.add(number, nil)
			continue
		}
		record := &kgo.Record{Topic: l.topic, Partition: int32(thread % l.partitions), Value: payload}
		switch l.answersBy {
		case "handler":
			l.client.Produce(background, record, handler)
		case "futures":
			future := make(chan error, 1)
			l.client.Produce(background, record, func(_ *kgo.Record, err error) { future <- err })
			waiting.add(future, r)
		default:
			l.client.Produce(background, record, func(_ *kgo.Record, err error) { r.add(number, err) })
		}
	}
	waiting.drain(r)
	return late
}

// queue has the futures of records in the order of their sends.
type queue struct {
	futures []chan error
	first   int
}

// add appends a future, and every 64 takes those at the front that are done.
func (q *queue) add(future chan error, r *answers) {
	q.futures = append(q.futures, future)
	if len(q.futures)%64 != 0 {
		return
	}
	for q.first < len(q.futures) {
		select {
		case err := <-q.futures[q.first]:
			r.add(0, err)
			q.futures[q.first] = nil
			q.first++
		default:
			if q.first > len(q.futures)/2 {
				q.futures = append(q.futures[:0], q.futures[q.first:]...)
				q.first = 0
			}
			return
		}
	}
	q.futures, q.first = q.futures[:0], 0
}

func (q *queue) drain(r *answers) {
	for _, future := range q.futures[q.first:] {
		r.add(0, <-future)
	}
}

func (l *load) sendSlow(r *answers, isOver *atomic.Bool) (sent int64) {
	for !isOver.Load() {
		waitUntil(r.begun.Add(time.Duration(float64(sent) * 1e9 / l.slowRate)))
		record := &kgo.Record{Topic: l.slowTopic, Value: l.payloads[sent&int64(len(l.payloads)-1)]}
		l.client.Produce(background, record, func(_ *kgo.Record, err error) { r.add(slow, err) })
		sent++
	}
	return sent
}

// waitUntil returns the nanoseconds by which it was late. Go's own timers have a resolution of milliseconds (poll).
func waitUntil(due time.Time) int64 {
	if wait := time.Until(due); wait > 0 {
		pause := syscall.NsecToTimespec(int64(wait))
		_ = syscall.Nanosleep(&pause, nil)
	}
	return max(int64(time.Since(due)), 0)
}

// writeLatencies writes, little-endian, for each record the nanoseconds from the due time to the answer; then, for each,
// from the due time to the call.
func (l *load) writeLatencies(r *answers, late [][]int64) {
	file := value(os.Create(l.output))
	out := bufio.NewWriter(file)
	for number := range r.answeredAt {
		due := int64(float64(number) * 1e9 / l.rate)
		must(binary.Write(out, binary.LittleEndian, max(r.answeredAt[number].Load()-due, 0)))
	}
	for _, ofThread := range late {
		must(binary.Write(out, binary.LittleEndian, ofThread))
	}
	must(out.Flush())
	must(file.Close())
}
