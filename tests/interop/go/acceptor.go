package main

import (
	"fmt"
	"net"
)

// acceptAndClose is the control of a flood: what connections cost the machine at a process that does nothing with them.
func acceptAndClose() {
	listener := value(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Println(listener.Addr())
	for {
		connection := value(listener.Accept())
		// Closed by a reset, as the flood does: nothing waits afterwards.
		must(connection.(*net.TCPConn).SetLinger(0))
		must(connection.Close())
	}
}
