package main

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets of at most 1/128 of their value, from 100 ns to hours; nothing is clipped.
type histogram struct {
	counts map[int]int64
	total  int64
	max    time.Duration
}

// percentiles are in milliseconds.
type percentiles struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

func newHistogram() *histogram { return &histogram{counts: map[int]int64{}} }

func (h *histogram) add(d time.Duration) {
	if d < 0 {
		d = 0
	}
	h.counts[bucketOf(uint64(d)/100)]++
	h.total++
	h.max = max(h.max, d)
}

// A bucket is an exponent and the seven bits after the leading one.
func bucketOf(units uint64) int {
	if units < 256 {
		return int(units)
	}
	shift := bits.Len64(units) - 8
	return shift<<8 | int(units>>shift)
}

func upperBound(bucket int) float64 {
	shift := bucket >> 8
	return float64((uint64(bucket&255)+1)<<shift) * 100 / 1e6
}

func (h *histogram) percentiles() *percentiles {
	p := &percentiles{Count: h.total, Max: float64(h.max) / 1e6}
	at := func(share float64) float64 {
		wanted, seen := int64(share*float64(h.total)), int64(0)
		for bucket := 0; bucket < 64<<8; bucket++ {
			if seen += h.counts[bucket]; seen > wanted {
				return min(upperBound(bucket), p.Max)
			}
		}
		return p.Max
	}
	p.P50, p.P95, p.P99, p.P999 = at(0.5), at(0.95), at(0.99), at(0.999)
	return p
}

// raw lists upper bounds in microseconds with their counts.
func (h *histogram) raw() [][2]int64 {
	var pairs [][2]int64
	for bucket := 0; bucket < 64<<8; bucket++ {
		if count := h.counts[bucket]; count > 0 {
			micros := int64(upperBound(bucket) * 1000)
			if last := len(pairs) - 1; last >= 0 && pairs[last][0] == micros {
				pairs[last][1] += count
			} else {
				pairs = append(pairs, [2]int64{micros, count})
			}
		}
	}
	return pairs
}
