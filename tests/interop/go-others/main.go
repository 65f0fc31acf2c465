// Sarama and kafka-go against a broker: what an application does every day, and Sarama over TLS and SASL.
//
// Prints `CASE<tab>name<tab>ok|fail<tab>detail` for each case.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	perCodec   = 100
	partitions = 3
	wait       = 30 * time.Second
	// A record too many would come within this time.
	grace = 500 * time.Millisecond
)

var failures int

func check(name string, body func() error) {
	if err := body(); err != nil {
		failures++
		fmt.Printf("CASE\t%s\tfail\t%s\n", name, strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	fmt.Printf("CASE\t%s\tok\t\n", name)
}

func same(what string, expected, found []string) error {
	expected, found = slices.Sorted(slices.Values(expected)), slices.Sorted(slices.Values(found))
	if !slices.Equal(expected, found) {
		return fmt.Errorf("%s: %d expected, %d found: %.300v", what, len(expected), len(found), found)
	}
	return nil
}

// shown is how the two compare records.
func shown(key, value, header string) string { return key + " " + value + " " + header }

func numbered(word string, count int) []string {
	var values []string
	for number := range count {
		values = append(values, shown(fmt.Sprintf("key-%d", number), fmt.Sprintf("%s-%d", word, number), fmt.Sprint(number)))
	}
	return values
}

func main() {
	bootstrap := os.Args[2]
	switch os.Args[1] {
	case "sarama":
		everydaySarama(bootstrap)
	case "kafka-go":
		everydayKafkaGo(bootstrap)
	case "sarama-secured":
		if err := securedSarama(os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "unknown client", os.Args[1])
		os.Exit(2)
	}
	if failures > 0 {
		os.Exit(1)
	}
}
