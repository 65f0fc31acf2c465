package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is one producer or consumer as a properties file describes it; it prints a line of JSON every second with what it
// did, until it is ended. Keys that begin with "load." are explained in xtask/src/doctor_truth/load.rs; all others are
// settings of the client by their Java names.
type load struct {
	load, settings map[string]string
	mutex          sync.Mutex
	done, failed   int
	latencies      []time.Duration
}

func runLoad(bootstrap, file string) {
	l := &load{load: map[string]string{}, settings: map[string]string{}}
	text := value(os.Open(file))
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		key, setting, found := strings.Cut(lines.Text(), "=")
		if !found {
			continue
		}
		if name, ok := strings.CutPrefix(key, "load."); ok {
			l.load[name] = setting
		} else {
			l.settings[key] = setting
		}
	}
	options := append(l.options(), kgo.SeedBrokers(bootstrap))
	go l.report()
	if l.load["role"] == "producer" {
		l.produce(value(kgo.NewClient(options...)))
	} else {
		l.consume(value(kgo.NewClient(append(options, kgo.ConsumeTopics(l.load["topic"]))...)))
	}
}

func (l *load) number(key string, otherwise int) int {
	text, found := l.load[key]
	if !found {
		return otherwise
	}
	return value(strconv.Atoi(text))
}

// options fails on a setting that franz-go does not have, so that no regime runs without its cause.
func (l *load) options() []kgo.Opt {
	var options []kgo.Opt
	for key, setting := range l.settings {
		number, _ := strconv.Atoi(setting)
		switch key {
		case "client.id":
			options = append(options, kgo.ClientID(setting))
		case "group.id":
			options = append(options, kgo.ConsumerGroup(setting))
		case "auto.offset.reset":
			from := kgo.NewOffset().AtStart()
			if setting == "latest" {
				from = kgo.NewOffset().AtEnd()
			}
			options = append(options, kgo.ConsumeResetOffset(from))
		case "batch.size":
			options = append(options, kgo.ProducerBatchMaxBytes(int32(number)))
		case "linger.ms":
			options = append(options, kgo.ProducerLinger(time.Duration(number)*time.Millisecond))
		case "max.in.flight.requests.per.connection":
			options = append(options, kgo.MaxProduceRequestsInflightPerBroker(number), kgo.DisableIdempotentWrite())
		case "fetch.min.bytes":
			options = append(options, kgo.FetchMinBytes(int32(number)))
		case "fetch.max.wait.ms":
			options = append(options, kgo.FetchMaxWait(time.Duration(number)*time.Millisecond))
		case "max.partition.fetch.bytes":
			options = append(options, kgo.FetchMaxPartitionBytes(int32(number)))
		case "enable.metrics.push":
			if setting == "false" {
				options = append(options, kgo.DisableClientMetrics())
			}
		default:
			panic("franz-go has no setting " + key)
		}
	}
	return options
}

func (l *load) report() {
	for range time.Tick(time.Second) {
		l.mutex.Lock()
		sort.Slice(l.latencies, func(i, j int) bool { return l.latencies[i] < l.latencies[j] })
		var sum, p99 time.Duration
		for _, latency := range l.latencies {
			sum += latency
		}
		count := len(l.latencies)
		if count > 0 {
			p99 = l.latencies[(count-1)*99/100]
			sum /= time.Duration(count)
		}
		fmt.Printf("{\"records\":%d,\"failed\":%d,\"mean_ms\":%.3f,\"p99_ms\":%.3f}\n", l.done, l.failed, sum.Seconds()*1e3, p99.Seconds()*1e3)
		l.done, l.failed, l.latencies = 0, 0, l.latencies[:0]
		l.mutex.Unlock()
	}
}

func (l *load) finished(latency time.Duration, failed bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if failed {
		l.failed++
		return
	}
	l.done++
	if len(l.latencies) < 100_000 {
		l.latencies = append(l.latencies, latency)
	}
}

func (l *load) produce(client *kgo.Client) {
	rate, callback := l.number("rate", 0), time.Duration(l.number("callback.micros", 0))*time.Microsecond
	bytes := l.number("record.bytes", 100)
	values := make([][]byte, max(1, min(500, 50_000_000/max(bytes, 1))))
	for i := range values {
		values[i] = make([]byte, bytes)
		rand.Read(values[i])
	}
	began := time.Now()
	for sent := 0; ; sent++ {
		if rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(float64(sent) * 1e9 / float64(rate)))))
		}
		record := &kgo.Record{Topic: l.load["topic"], Value: values[sent%len(values)]}
		switch l.load["keys"] {
		case "hot":
			record.Key = []byte("hot")
			if rand.Intn(10) == 0 {
				record.Key = []byte(fmt.Sprintf("k%d", rand.Intn(1000)))
			}
		case "spread":
			record.Key = []byte(fmt.Sprintf("k%d", rand.Intn(100_000)))
		}
		at := time.Now()
		done := func(_ *kgo.Record, err error) {
			l.finished(time.Since(at), err != nil)
			time.Sleep(callback)
		}
		if l.load["synchronous"] == "true" {
			done(nil, client.ProduceSync(context.Background(), record).FirstErr())
		} else {
			client.Produce(context.Background(), record, done)
		}
	}
}

func (l *load) consume(client *kgo.Client) {
	processing := time.Duration(l.number("processing.micros", 0)) * time.Microsecond
	for {
		client.PollRecords(context.Background(), 500).EachRecord(func(record *kgo.Record) {
			time.Sleep(processing)
			l.finished(time.Since(record.Timestamp), false)
		})
	}
}
