// The franz-go half of the interop suite; prints `CASE<tab>name<tab>ok|fail<tab>detail` for each case.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: interop PHASE BOOTSTRAP [ARGUMENT...]")
		os.Exit(2)
	}
	phase, bootstrap, rest := os.Args[1], os.Args[2], os.Args[3:]
	if strings.HasPrefix(phase, "bench-") {
		bench(phase, bootstrap, rest)
		return
	}
	switch phase {
	case "first-record":
		firstRecord(bootstrap, rest[0])
		return
	case "load":
		runLoad(bootstrap, rest[0])
		return
	case "accept":
		acceptAndClose()
		return
	case "null-sink":
		nullSink(value(strconv.Atoi(rest[0])))
		return
	}
	s := newSuite(bootstrap)
	switch phase {
	case "write":
		for _, codec := range codecs {
			s.run("write "+codec, func() { writeRecords(s, crossTopic("franz-go", codec), codec) })
		}
	case "read":
		for _, writer := range rest {
			for _, codec := range codecs {
				s.run("read "+writer+" "+codec, func() { readRecords(s, crossTopic(writer, codec), writer) })
			}
		}
	case "cases":
		dataCases(s)
		adminCases(s)
		groupCases(s)
	case "transactions":
		transactions(s)
	case "member":
		groupMember(s, rest)
	case "drain":
		s.run(phase, func() { drain(s, rest) })
	case "secured":
		secured(s, rest[0])
	case "login":
		login(s, rest)
	case "push":
		s.run(phase, func() { push(s, value(strconv.Atoi(rest[0]))) })
	case "fill", "more", "again":
		s.run(phase, func() { takeover(s, phase) })
	case "crash-create", "crash-load", "crash-check":
		crash(s, phase, rest)
	case "crash-transactions", "crash-transactions-check":
		crashTransactions(s, phase, rest)
	default:
		fmt.Fprintln(os.Stderr, "unknown phase "+phase)
		os.Exit(2)
	}
	s.admin.Close()
	if s.failures > 0 {
		os.Exit(1)
	}
}

func oneLine(text string) string {
	return strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(text)
}
