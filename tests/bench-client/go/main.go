// franz-go as a contender of `cargo xtask bench-client` (see the Rust skeleton for the handshake), and the
// administrative errands of every run: create and delete topics, look up end offsets.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

var background = context.Background()

type arguments map[string]string

func (a arguments) number(key string) int64 {
	return value(strconv.ParseInt(a[key], 10, 64))
}

func (a arguments) numberOr(key string, otherwise float64) float64 {
	if a[key] == "" {
		return otherwise
	}
	return value(strconv.ParseFloat(a[key], 64))
}

func main() {
	a := arguments{}
	for _, word := range os.Args[2:] {
		key, text, _ := strings.Cut(word, "=")
		a[key] = text
	}
	switch os.Args[1] {
	case "produce":
		produce(a)
	case "consume":
		consume(a)
	case "create", "delete", "ends":
		errand(os.Args[1], a)
	default:
		panic("unknown mode " + os.Args[1])
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

var input = bufio.NewReader(os.Stdin)

func sayAndWait(word string) {
	fmt.Println(word)
	value(input.ReadString('\n'))
}

func connect(a arguments, options ...kgo.Opt) *kgo.Client {
	return value(kgo.NewClient(append(options, kgo.SeedBrokers(a["bootstrap"]))...))
}
