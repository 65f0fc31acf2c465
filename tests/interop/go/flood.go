package main

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Connections that are opened at the same time, and how many each of them leaves open behind it: more in all than any broker
// should keep.
const (
	flooders = 64
	leftOpen = 64
)

// halfHello is the first half of what a client of TLS sends first.
func halfHello(config *tls.Config) []byte {
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(ours, config).Handshake() }()
	hello := make([]byte, 16*1024)
	read := value(theirs.Read(hello))
	must(theirs.Close())
	return hello[:read/2]
}

// flood opens connections at a rate, from -connections addresses of this machine, and leaves each in the middle of its hello.
// Acknowledged counts those that were opened.
func flood(address string, w workload) *result {
	r := &result{Workload: w, Invalid: []string{}}
	hello := halfHello(w.tls(address))
	started := time.Now()
	end := started.Add(time.Duration(w.Seconds * 1e9))
	var running sync.WaitGroup
	var opened, number atomic.Int64
	for range flooders {
		running.Add(1)
		go func() {
			defer running.Done()
			var left []net.Conn
			for {
				mine := number.Add(1)
				due := started.Add(time.Duration(float64(mine) / w.Rate * 1e9))
				if due.After(end) {
					break
				}
				time.Sleep(time.Until(due))
				from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+mine%int64(w.Connections)))}
				dialer := net.Dialer{LocalAddr: from, Timeout: time.Second}
				connection, err := dialer.Dial("tcp", address)
				if err != nil {
					continue
				}
				opened.Add(1)
				// Closed by a reset: ports would wait otherwise.
				must(connection.(*net.TCPConn).SetLinger(0))
				// The broker may have closed it.
				_, _ = connection.Write(hello)
				if left = append(left, connection); len(left) > leftOpen {
					_ = left[0].Close()
					left = left[1:]
				}
			}
			for _, connection := range left {
				_ = connection.Close()
			}
		}()
	}
	running.Wait()
	r.Sent, r.Acknowledged = number.Load()-flooders, opened.Load()
	r.Seconds = time.Since(started).Seconds()
	r.Rate = float64(r.Acknowledged) / r.Seconds
	return r
}
