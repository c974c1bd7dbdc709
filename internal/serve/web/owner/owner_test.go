// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"net/netip"
)

// The test program runs itself with this argument and an address, as another user.
const connects = "connect-and-wait"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == connects {
		conn, err := net.Dial("tcp", os.Args[2])
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, conn)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func ends(c net.Conn) (local, remote netip.AddrPort) {
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// accepted returns a listener, and the next connection that it accepts.
func accepted(t *testing.T, network, address string) (net.Listener, func() net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err) // there is no IPv6
	}
	t.Cleanup(func() { l.Close() })
	return l, func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func TestTheUserOfAConnectionIsThatOfItsProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ network, listen, dial string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"}, {"tcp6", "[::1]:0", "[::1]"}, {"tcp", "[::]:0", "127.0.0.1"}, {"tcp", "[::]:0", "[::ffff:127.0.0.1]"},
	} {
		for _, uid := range []uint32{0, 1234, 65534} {
			t.Run(fmt.Sprint(x.listen, x.dial, uid), func(t *testing.T) {
				l, accept := accepted(t, x.network, x.listen)
				cmd := exec.Command("/proc/self/fd/3", connects, fmt.Sprintf("%s:%d", x.dial, l.Addr().(*net.TCPAddr).Port))
				f, err := os.Open(self) // the user may not reach its folder
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				cmd.ExtraFiles, cmd.Stdout = []*os.File{f}, os.Stderr
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				c := accept()
				if got, err := Of(ends(c)); err != nil || got != uid {
					t.Errorf("user %d, %v", got, err)
				}
				c.Close()
				_ = cmd.Wait()
			})
		}
	}
}

// TestAClosedSocketIsNobodys: the kernel has root as the user of a socket whose program is gone.
func TestAClosedSocketIsNobodys(t *testing.T) {
	l, accept := accepted(t, "tcp4", "127.0.0.1:0")
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := accept()
	if uid, err := Of(ends(c)); err != nil || int(uid) != os.Geteuid() {
		t.Fatalf("before: user %d, %v", uid, err)
	}
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if uid, err := Of(ends(c)); err != nil || int(uid) != os.Geteuid() {
		t.Errorf("of one that sends no more: user %d, %v", uid, err)
	}
	client.Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := Of(ends(c)); errors.Is(err, ErrNone) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("a closed one: %v", err)
		}
	}
}

// TestASocketThatListensThereIsNotTheClients: nothing is connected, but another program listens at
// the address that is asked for.
func TestASocketThatListensThereIsNotTheClients(t *testing.T) {
	l, _ := accepted(t, "tcp4", "127.0.0.1:0")
	remote := l.Addr().(*net.TCPAddr).AddrPort()
	if uid, err := Of(netip.MustParseAddrPort("127.0.0.1:9"), remote); !errors.Is(err, ErrNone) {
		t.Errorf("user %d, %v", uid, err)
	}
}

func TestAnswersThatAreCutOffAreNoAnswers(t *testing.T) {
	a := netip.MustParseAddrPort("127.0.0.1:9")
	for n := range answerBytes {
		if _, ok := userIn(make([]byte, n), a, a); ok {
			t.Errorf("%d bytes are an answer", n)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if _, err := Of(ends(c)); err != nil {
			b.Fatal(err)
		}
	}
}
