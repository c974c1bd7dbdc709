// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reader makes a test binary wait for its input as Call waits for a traced process.
const reader = "VRAMPROF_TEST_PATIENCE"

func TestMain(m *testing.M) {
	if os.Getenv(reader) == "" {
		os.Exit(m.Run())
	}
	lines := bufio.NewReader(os.Stdin)
	answer, err := Call(patienceOfReader, func() (string, error) {
		fmt.Println("reads")
		return lines.ReadString('\n')
	})
	fmt.Print(answer, err, "\n")
}

const patienceOfReader = 2 * time.Second

// TestTimeWhileStoppedDoesNotCount stops a process for longer than its Call waits.
func TestTimeWhileStoppedDoesNotCount(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), reader+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "reads\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(patienceOfReader + 200*time.Millisecond)
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // of its patience: the rest of the limit is left
	io.WriteString(in, "answer\n")
	rest, err := io.ReadAll(lines)
	if err != nil || strings.TrimSpace(string(rest)) != "answer\n<nil>" {
		t.Errorf("%q, %v", rest, err)
	}
}
