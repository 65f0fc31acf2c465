package main

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// connect opens a connection, over TLS with a full handshake where certificates are trusted, and exchanges one ApiVersions on it:
// in TLS 1.3 a client is done before its server is.
func connect(address string, config *tls.Config) net.Conn {
	plain := value(net.Dial("tcp", address))
	// Closed by a reset: thousands of ports would wait otherwise.
	must(plain.(*net.TCPConn).SetLinger(0))
	connection := plain
	if config != nil {
		connection = tls.Client(plain, config)
	}
	// Key 18, version 0, correlation id 1, no client id.
	value(connection.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255}))
	var length [4]byte
	value(io.ReadFull(connection, length[:]))
	value(io.CopyN(io.Discard, connection, int64(binary.BigEndian.Uint32(length[:]))))
	return connection
}

func (w workload) tls(address string) *tls.Config {
	if w.Trust == "" {
		return nil
	}
	config := trusting(w.Trust)
	config.MinVersion = tls.VersionTLS13
	host, _, err := net.SplitHostPort(address)
	must(err)
	config.ServerName = host
	return config
}

// connectAgain opens connections as fast as they come; acknowledged counts them.
func connectAgain(address string, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}}
	config := w.tls(address)
	begin := time.Now().Add(time.Duration(w.Warmup * 1e9))
	end := begin.Add(time.Duration(w.Seconds * 1e9))
	var running sync.WaitGroup
	var count atomic.Int64
	for range w.Connections {
		running.Add(1)
		go func() {
			defer running.Done()
			for time.Now().Before(end) {
				must(connect(address, config).Close())
				count.Add(1)
			}
		}()
	}
	time.Sleep(time.Until(begin))
	before, first := measure(w), count.Load()
	time.Sleep(time.Until(end))
	after := measure(w)
	r.Acknowledged = count.Load() - first
	running.Wait()
	r.account(before, after)
	r.Rate = float64(r.Acknowledged) / r.Seconds
	return r
}

// keepConnections opens connections without TLS, then as many over TLS, and keeps them all: what the first ones give back would be
// used by the others. It reports by how much the broker's resident memory grew with each kind.
func keepConnections(address string, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}}
	config := w.tls(address)
	// What the first connections need of everything else is not theirs.
	for range 20 {
		must(connect(w.Plain, nil).Close())
		must(connect(address, config).Close())
	}
	var kept []net.Conn
	open := func(address string, config *tls.Config) int64 {
		time.Sleep(2 * time.Second)
		before := memoryKiB(w, "VmRSS:")
		for range w.Connections {
			kept = append(kept, connect(address, config))
		}
		time.Sleep(2 * time.Second)
		return memoryKiB(w, "VmRSS:") - before
	}
	r.PlainGrowth = open(w.Plain, nil)
	r.BrokerGrowth = open(address, config)
	r.Acknowledged = int64(len(kept))
	for _, connection := range kept {
		must(connection.Close())
	}
	return r
}
