package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// workload has the options of one run of the generator; every field is in the report.
type workload struct {
	Kind       string  `json:"kind"`
	Topic      string  `json:"topic"`
	Partitions int     `json:"partitions"`
	Rate       float64 `json:"rate_per_s"`
	Seconds    float64 `json:"seconds"`
	Warmup     float64 `json:"warmup_s"`
	Records    int64   `json:"records"`
	Bytes      int     `json:"record_bytes"`
	LingerMs   float64 `json:"linger_ms"`
	Acks       string  `json:"acks"`
	Contents   string  `json:"contents"`
	Codec      string  `json:"compression"`
	Pid        int     `json:"broker_pid"`
	Passes     int     `json:"passes"`
	Producers  int     `json:"producers"`
	// Connections are opened over TLS where there is a file of trusted certificates.
	Trust       string `json:"trust"`
	Plain       string `json:"plain"`
	Connections int    `json:"connections"`
	Members     int    `json:"members"`
}

// result is one line of JSON. Latencies are in milliseconds; intended counts from the scheduled time, service from the call.
type result struct {
	Workload      workload     `json:"workload"`
	Sent          int64        `json:"sent"`
	Acknowledged  int64        `json:"acknowledged"`
	Received      int64        `json:"received"`
	Errors        int64        `json:"errors"`
	Duplicates    int64        `json:"duplicates"`
	Disordered    int64        `json:"disordered"`
	Seconds       float64      `json:"seconds"`
	Rate          float64      `json:"rate_per_s"`
	RateDrift     float64      `json:"rate_last_third_over_first"`
	Intended      *percentiles `json:"intended,omitempty"`
	Service       *percentiles `json:"service,omitempty"`
	Late          *percentiles `json:"late,omitempty"`
	Curve         []point      `json:"curve,omitempty"`
	Intervals     []interval   `json:"intervals,omitempty"`
	BrokerCPU     float64      `json:"broker_cpu_s"`
	BrokerPeakKiB int64        `json:"broker_peak_kib"`
	BrokerGrowth  int64        `json:"broker_growth_kib"`
	PlainGrowth   int64        `json:"broker_growth_plain_kib"`
	GeneratorCPU  float64      `json:"generator_cpu_s"`
	// Settled has seconds.
	Settled        map[string]float64 `json:"settled_s,omitempty"`
	Invalid        []string           `json:"invalid"`
	RawMicrosCount [][2]int64         `json:"raw_intended_us_count,omitempty"`
}

// point is the end-to-end latency of one interval of the run.
type point struct {
	FromS float64 `json:"from_s"`
	percentiles
}

// interval is a part of a run without a schedule.
type interval struct {
	FromS        float64 `json:"from_s"`
	Seconds      float64 `json:"seconds"`
	Acknowledged int64   `json:"acknowledged"`
	BrokerCPU    float64 `json:"broker_cpu_s"`
}

func bench(kind, bootstrap string, arguments []string) {
	w := workload{Kind: kind}
	flags := flag.NewFlagSet(kind, flag.ExitOnError)
	flags.StringVar(&w.Topic, "topic", "bench", "")
	flags.IntVar(&w.Partitions, "partitions", 6, "")
	flags.Float64Var(&w.Rate, "rate", 0, "records per second; 0 is as fast as possible")
	flags.Float64Var(&w.Seconds, "seconds", 10, "")
	flags.Float64Var(&w.Warmup, "warmup", 2, "")
	flags.Int64Var(&w.Records, "records", 0, "")
	flags.IntVar(&w.Bytes, "bytes", 256, "")
	flags.Float64Var(&w.LingerMs, "linger", 0, "")
	flags.StringVar(&w.Acks, "acks", "all", "")
	flags.StringVar(&w.Contents, "contents", "json", "json or random")
	flags.StringVar(&w.Codec, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	flags.IntVar(&w.Pid, "pid", 0, "the broker's process")
	flags.IntVar(&w.Passes, "passes", 1, "")
	flags.IntVar(&w.Producers, "producers", 1, "transactional ids; -records is of each transaction")
	flags.StringVar(&w.Trust, "trust", "", "connect over TLS and trust the certificates of this file")
	flags.StringVar(&w.Plain, "plain", "", "an address of the same broker without TLS")
	flags.IntVar(&w.Connections, "connections", 8, "opened at the same time; of a flood: the addresses that they come from")
	flags.IntVar(&w.Members, "members", 1, "of a group")
	must(flags.Parse(arguments))
	var secure []kgo.Opt
	if w.Trust != "" {
		secure = append(secure, kgo.DialTLSConfig(w.tls(bootstrap)))
	}
	s := newSuite(bootstrap, secure...)
	var r *result
	switch kind {
	case "bench-create":
		s.createTopic(w.Topic, int32(w.Partitions))
		return
	case "bench-saturate":
		r = saturate(s, w)
	case "bench-sustained":
		r = sustained(s, w)
	case "bench-paced":
		r = paced(s, w, false)
	case "bench-e2e":
		r = paced(s, w, true)
	case "bench-consume":
		r = consumeAll(s, w)
	case "bench-transactions":
		r = transact(s, w)
	case "bench-rebalance":
		r = rebalance(s, w)
	case "bench-connect":
		r = connectAgain(bootstrap, w)
	case "bench-flood":
		r = flood(bootstrap, w)
	case "bench-idle-connections":
		r = keepConnections(bootstrap, w)
	}
	if r.Errors > 0 || r.Duplicates > 0 || r.Disordered > 0 {
		r.Invalid = append(r.Invalid, fmt.Sprintf("%d errors, %d duplicates, %d out of order", r.Errors, r.Duplicates, r.Disordered))
	}
	must(json.NewEncoder(os.Stdout).Encode(r))
}

// payload has the intended time (8 bytes, ns), the sequence number (8), the partition (4), then contents.
type payload struct{ pool [][]byte }

const stamped = 20

func newPayload(w workload) payload {
	random := rand.New(rand.NewPCG(1, 2))
	p := payload{}
	for i := range 4096 {
		text := make([]byte, 0, w.Bytes)
		if w.Contents == "random" {
			for len(text) < w.Bytes {
				text = binary.LittleEndian.AppendUint64(text, random.Uint64())
			}
		} else {
			for len(text) < w.Bytes {
				text = append(text, fmt.Sprintf(`{"order":%d,"customer":"c-%05d","amount":%.2f,"city":"%s","paid":%t},`,
					i*7919, random.IntN(50000), random.Float64()*1000, cities[random.IntN(len(cities))], random.IntN(2) == 0)...)
			}
		}
		p.pool = append(p.pool, text[:w.Bytes])
	}
	return p
}

var cities = []string{"Praha", "Brno", "Ostrava", "Plzen", "Liberec", "Olomouc"}

func (p payload) record(w workload, number int64, intended time.Time) *kgo.Record {
	value := make([]byte, w.Bytes)
	copy(value, p.pool[number%int64(len(p.pool))])
	partition := int32(number % int64(w.Partitions))
	binary.LittleEndian.PutUint64(value, uint64(intended.UnixNano()))
	binary.LittleEndian.PutUint64(value[8:], uint64(number))
	binary.LittleEndian.PutUint32(value[16:], uint32(partition))
	return &kgo.Record{Topic: w.Topic, Partition: partition, Value: value}
}

func producerOptions(w workload) []kgo.Opt {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), compression(w.Codec), kgo.MaxBufferedRecords(200_000),
		kgo.MaxBufferedBytes(512 << 20), kgo.ProducerLinger(time.Duration(w.LingerMs * float64(time.Millisecond))),
	}
	switch w.Acks {
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	default:
		options = append(options, kgo.RequiredAcks(kgo.AllISRAcks()))
	}
	return options
}

// usage is the CPU time of both processes so far.
type usage struct {
	at                time.Time
	broker, generator float64
}

func measure(w workload) usage {
	var own syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	seconds := func(v syscall.Timeval) float64 { return float64(v.Sec) + float64(v.Usec)/1e6 }
	u := usage{at: time.Now(), generator: seconds(own.Utime) + seconds(own.Stime)}
	if w.Pid > 0 {
		text := string(value(os.ReadFile("/proc/" + strconv.Itoa(w.Pid) + "/stat")))
		// The fields after the name in parentheses: state is the first, utime and stime the 12th and 13th, in 1/100 s.
		fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		u.broker = float64(value(strconv.Atoi(fields[11]))+value(strconv.Atoi(fields[12]))) / 100
	}
	return u
}

func (r *result) account(before, after usage) {
	r.Seconds = after.at.Sub(before.at).Seconds()
	r.BrokerCPU = after.broker - before.broker
	r.GeneratorCPU = after.generator - before.generator
	if r.Workload.Pid > 0 {
		r.BrokerPeakKiB = memoryKiB(r.Workload, "VmHWM:")
	}
}

// memoryKiB is a line of the broker's status.
func memoryKiB(w workload, name string) int64 {
	for _, line := range strings.Split(string(value(os.ReadFile("/proc/"+strconv.Itoa(w.Pid)+"/status"))), "\n") {
		if strings.HasPrefix(line, name) {
			return int64(value(strconv.Atoi(strings.Fields(line)[1])))
		}
	}
	panic(name + " is not in the broker's status")
}

// saturate sends as fast as acknowledgements allow: a capacity test, whose latency is that of a full queue.
func saturate(s *suite, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}}
	content := newPayload(w)
	client := s.client(producerOptions(w)...)
	defer client.Close()
	send := func(from, count int64) {
		var done sync.WaitGroup
		for i := from; i < from+count; i++ {
			done.Add(1)
			client.Produce(background, content.record(w, i, time.Now()), func(_ *kgo.Record, err error) {
				if err != nil {
					atomic.AddInt64(&r.Errors, 1)
				} else {
					atomic.AddInt64(&r.Acknowledged, 1)
				}
				done.Done()
			})
		}
		done.Wait()
	}
	warmup := int64(w.Warmup * 100_000)
	send(0, warmup)
	r.Acknowledged = 0
	before := measure(w)
	send(warmup, w.Records)
	r.Sent = w.Records
	r.account(before, measure(w))
	r.Rate = float64(r.Acknowledged) / r.Seconds
	return r
}

// sustained sends as fast as acknowledgements allow until the time or the records are used up, and accounts for it in intervals
// of ten seconds: what a log costs that grows.
func sustained(s *suite, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}}
	content := newPayload(w)
	client := s.client(producerOptions(w)...)
	defer client.Close()
	var number int64
	send := func(until time.Time, records int64) {
		for ; number < records && time.Now().Before(until); number++ {
			client.Produce(background, content.record(w, number, time.Now()), func(_ *kgo.Record, err error) {
				if err != nil {
					atomic.AddInt64(&r.Errors, 1)
				} else {
					atomic.AddInt64(&r.Acknowledged, 1)
				}
			})
		}
	}
	seconds := func(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
	send(time.Now().Add(seconds(w.Warmup)), w.Records)
	first := measure(w)
	before, acknowledged := first, atomic.LoadInt64(&r.Acknowledged)
	begun, warm := first.at, number
	for number < w.Records && time.Since(begun) < seconds(w.Seconds) {
		send(before.at.Add(10*time.Second), w.Records)
		now, count := measure(w), atomic.LoadInt64(&r.Acknowledged)
		r.Intervals = append(r.Intervals, interval{
			FromS: before.at.Sub(begun).Seconds(), Seconds: now.at.Sub(before.at).Seconds(),
			Acknowledged: count - acknowledged, BrokerCPU: now.broker - before.broker,
		})
		before, acknowledged = now, count
	}
	must(client.Flush(background))
	r.Sent = number - warm
	r.Acknowledged -= warm
	r.account(first, measure(w))
	r.Rate = float64(r.Acknowledged) / r.Seconds
	return r
}

// paced is an open loop: record i is due at start + i / rate, whatever happened to those before it.
func paced(s *suite, w workload, endToEnd bool) *result {
	r := &result{Workload: w, Invalid: []string{}}
	content := newPayload(w)
	client := s.client(producerOptions(w)...)
	defer client.Close()
	warm := int64(w.Warmup * w.Rate)
	total := warm + int64(w.Seconds*w.Rate)
	var lock sync.Mutex
	intended, service, late := newHistogram(), newHistogram(), newHistogram()

	receiver := newReceiver(w, warm, total)
	if endToEnd {
		go receiver.run(s)
		<-receiver.ready
	}
	var before usage
	thirds := [2]int64{}
	start := time.Now().Add(50 * time.Millisecond)
	due := func(i int64) time.Time { return start.Add(time.Duration(float64(i) / w.Rate * 1e9)) }
	receiver.start.Store(start.Add(time.Duration(w.Warmup * 1e9)).UnixNano())
	third := time.Duration(w.Seconds / 3 * 1e9)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := start.Add(time.Duration(w.Warmup * 1e9))
	for i := int64(0); i < total; {
		if wait := time.Until(due(i)); wait > 0 {
			// Go's own timers have a resolution of milliseconds (poll), half of the latencies measured here.
			pause := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&pause, nil)
		}
		if i >= warm && before.at.IsZero() {
			before = measure(w)
		}
		now := time.Now()
		for ; i < total && !due(i).After(now); i++ {
			at, called, number := due(i), time.Now(), i
			client.Produce(background, content.record(w, i, at), func(_ *kgo.Record, err error) {
				done := time.Now()
				lock.Lock()
				defer lock.Unlock()
				if number < warm {
					return
				}
				if err != nil {
					r.Errors++
					return
				}
				r.Acknowledged++
				if done.Before(begin.Add(third)) {
					thirds[0]++
				} else if done.After(begin.Add(2 * third)) {
					thirds[1]++
				}
				intended.add(done.Sub(at))
				service.add(done.Sub(called))
				late.add(called.Sub(at))
			})
		}
	}
	must(client.Flush(background))
	if endToEnd {
		select {
		case <-receiver.done:
		case <-time.After(time.Minute):
			r.Invalid = append(r.Invalid, "the consumer did not receive everything within a minute")
		}
	}
	r.Sent = total - warm
	r.account(before, measure(w))
	r.Rate = float64(r.Acknowledged) / r.Seconds
	if thirds[0] > 0 {
		r.RateDrift = float64(thirds[1]) / float64(thirds[0])
	}
	r.Intended, r.Service, r.Late = intended.percentiles(), service.percentiles(), late.percentiles()
	r.RawMicrosCount = intended.raw()
	if endToEnd {
		receiver.report(r)
	}
	r.validate()
	return r
}

// transact commits one transaction after the other with each transactional id. Acknowledged counts transactions; service is the time
// of the commit, intended that of the whole transaction.
func transact(s *suite, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}}
	content := newPayload(w)
	commit, whole := newHistogram(), newHistogram()
	var lock sync.Mutex
	begin := time.Now().Add(time.Duration(w.Warmup * 1e9))
	end := begin.Add(time.Duration(w.Seconds * 1e9))
	one := func(client *kgo.Client, number int64) {
		started, failed := time.Now(), int64(0)
		err := client.BeginTransaction()
		for i := range w.Records {
			client.Produce(background, content.record(w, number+i, started), func(_ *kgo.Record, err error) {
				if err != nil {
					atomic.AddInt64(&failed, 1)
				}
			})
		}
		if err == nil {
			err = client.Flush(background)
		}
		sent := time.Now()
		if err == nil {
			err = client.EndTransaction(background, kgo.TryCommit)
		}
		done := time.Now()
		lock.Lock()
		defer lock.Unlock()
		if err != nil || atomic.LoadInt64(&failed) > 0 {
			r.Errors++
		} else if done.After(begin) && !done.After(end) {
			r.Acknowledged++
			r.Sent += w.Records
			commit.add(done.Sub(sent))
			whole.add(done.Sub(started))
		}
	}
	var running sync.WaitGroup
	for i := range w.Producers {
		id := kgo.TransactionalID(fmt.Sprintf("%s-%d", w.Topic, i))
		client := s.client(append(producerOptions(w), id)...)
		running.Add(1)
		go func() {
			defer running.Done()
			defer client.Close()
			for number := int64(0); time.Now().Before(end); number += w.Records {
				one(client, number)
			}
		}()
	}
	time.Sleep(time.Until(begin))
	before := measure(w)
	time.Sleep(time.Until(end))
	after := measure(w)
	running.Wait()
	r.account(before, after)
	r.Rate = float64(r.Acknowledged) / r.Seconds
	r.Intended, r.Service = whole.percentiles(), commit.percentiles()
	return r
}

// validate returns the reasons why the generator, and not the broker, may have limited these numbers.
func (r *result) validate() {
	w := r.Workload
	// The end of the last request is part of the measured time, hence 2 % and half a second.
	if r.Seconds > w.Seconds*1.02+0.5 {
		r.Invalid = append(r.Invalid, fmt.Sprintf("schedule not held: %.1f s for a schedule of %.1f s", r.Seconds, w.Seconds))
	}
	if r.Late.P99 > 5 {
		r.Invalid = append(r.Invalid, fmt.Sprintf("1 %% of the records were sent more than %.1f ms late", r.Late.P99))
	}
	// The sending goroutine has one core; the client's other goroutines may use the second.
	if r.GeneratorCPU > 0.9*r.Seconds {
		r.Invalid = append(r.Invalid, fmt.Sprintf("the generator used %.0f %% of a core", 100*r.GeneratorCPU/r.Seconds))
	}
}

func consumeAll(s *suite, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}}
	before := measure(w)
	for range w.Passes {
		client := s.direct(w.Topic, int32(w.Partitions), kgo.FetchMaxBytes(50<<20), kgo.FetchMaxPartitionBytes(1<<20))
		next := make([]int64, w.Partitions)
		for count := int64(0); count < w.Records; {
			fetches := client.PollFetches(background)
			must(fetches.Err())
			fetches.EachRecord(func(record *kgo.Record) {
				if record.Offset != next[record.Partition] {
					r.Disordered++
				}
				next[record.Partition] = record.Offset + 1
				count++
				r.Received++
			})
		}
		client.Close()
	}
	r.account(before, measure(w))
	r.Rate = float64(r.Received) / r.Seconds
	return r
}
