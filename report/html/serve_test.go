// SPDX-License-Identifier: Apache-2.0

package html_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/html"
)

// TestPageOfServe follows a program that leaks, on the page of a real vramprof serve. It takes a
// minute and needs root: scripts/test-page.sh runs it.
func TestPageOfServe(t *testing.T) {
	vramprof := os.Getenv("VRAMPROF_SERVE_PAGE")
	if vramprof == "" {
		t.Skip("VRAMPROF_SERVE_PAGE names no vramprof: see scripts/test-page.sh")
	}
	x := &daemon{T: t, program: vramprof, name: "train.py", archive: t.TempDir(), address: freeAddress(t)}
	x.start()
	program := x.run("train.py")
	b := html.OpenBrowser(t)
	p := b.Visit(t, "http://"+x.address+"/", 1400, "light")
	p.Wait(`document.querySelector("#sites tbody .site .name")?.textContent.includes("train_step")`)
	p.Screenshot("serve-first")

	p.Eval(`document.getElementById("flame").focus()`, nil)
	p.Press("ArrowDown", "ArrowDown", "Enter")
	p.Eval(`{ const s = document.getElementById("process"); s.value = "0"; s.dispatchEvent(new Event("change")); scrollTo(0, 300); }`, nil)
	p.Wait(`location.hash.includes("zoom=")`)
	state := `[document.querySelector("#crumbs [aria-current]").textContent, document.getElementById("process").value, location.hash, Math.round(document.getElementById("allocated").getBoundingClientRect().top / 4)].join("|")`
	var before, after string
	p.Eval(state, &before)
	sum, updates, began := p.Text("#sum"), p.Number("html", "updates"), time.Now()
	p.Wait(fmt.Sprintf(`document.documentElement.dataset.updates >= %v`, updates+5))
	t.Logf("5 updates in %.1f s", time.Since(began).Seconds())
	p.Eval(state, &after)
	if before != after || p.Text("#sum") == sum {
		t.Errorf("the choice was %s, after 5 updates %s; the sum was %q, then %q", before, after, sum, p.Text("#sum"))
	}
	p.Wait(`document.querySelector("#findings.leaks")`)
	p.Screenshot("serve-leak")
	p.Clean()
	widths(t, b, x)
	p.Front()

	program.Process.Kill()
	program.Wait()
	p.Wait(`document.querySelector("#processes tbody").textContent.includes("ended")`)
	var wall float64
	p.Eval(`performance.timeOrigin + performance.now()`, &wall)

	x.stop()
	p.Wait(`document.getElementById("live").dataset.state === "lost"`)
	p.Forgive()
	x.start()
	p.Wait(`document.getElementById("live").dataset.state === "live" && !document.querySelector("#processes tbody").textContent.includes("ended")`)
	then := time.UnixMilli(int64(wall)).Add(-8 * time.Second).UTC().Format(time.RFC3339)
	p.Load("?at=" + then)
	p.Wait(`document.getElementById("live").dataset.state === "past"`)
	if !strings.Contains(p.Text("#sites tbody"), "train_step") {
		t.Errorf("the archive at %s has %q", then, p.Text("#sites tbody"))
	}
	p.Screenshot("serve-past")
	p.Click("#pause")
	p.Wait(`document.getElementById("live").dataset.state === "live"`)
	p.Clean()
}

// widths looks at the page in windows of several widths, of 44, 80 and 120 columns among them.
func widths(t *testing.T, b *html.Browser, x *daemon) {
	for _, width := range []int{360, 44 * 8, 80 * 8, 120 * 8, 1700} {
		small := b.Visit(t, "http://"+x.address+"/", width, map[bool]string{true: "dark", false: "light"}[width == 640])
		small.Wait(`document.documentElement.dataset.updates > 0`)
		var wide bool
		small.Eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
		if wide {
			t.Errorf("wider than a window of %d pixels", width)
		}
		small.Screenshot(fmt.Sprintf("serve-%d", width))
		small.Clean()
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	return socket.Addr().String()
}

// daemon is a vramprof serve.
type daemon struct {
	*testing.T
	program, name, archive, address string
	cmd                             *exec.Cmd
}

func (d *daemon) start() {
	d.Helper()
	var log bytes.Buffer
	d.cmd = exec.Command(d.program, "serve", "--name", d.name, "--web.listen-address", d.address, "--archive", filepath.Join(d.archive, "captures"), "--run-dir", "")
	d.cmd.Stderr, d.cmd.Env = &log, append(os.Environ(), "FAKECUDA_SHM="+d.gpu())
	if err := d.cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(d.stop)
	for range 300 {
		if r, err := http.Get("http://" + d.address + "/-/ready"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	d.cmd.Process.Kill()
	d.cmd.Wait()
	d.Fatalf("vramprof serve is not ready: %s", log.String())
}

// gpu is the fake GPU that the daemon and its programs share.
func (d *daemon) gpu() string { return filepath.Join(d.archive, "gpu") }

func (d *daemon) stop() {
	if d.cmd == nil {
		return
	}
	d.cmd.Process.Signal(os.Interrupt)
	d.cmd.Wait()
	d.cmd = nil
}

// running starts a program of testdata.
func (d *daemon) run(name string) *exec.Cmd {
	d.Helper()
	program, err := filepath.Abs("../../testdata/programs/" + name)
	if err != nil {
		d.Fatal(err)
	}
	cmd := exec.Command("python3", program)
	cmd.Env = append(os.Environ(), "FAKECUDA_SHM="+d.gpu(), "PYTHONDONTWRITEBYTECODE=1")
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}
