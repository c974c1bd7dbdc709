// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bufio"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
)

// TestPprofsPageInChromium: the boxes of pprof's flame graph have names, none of which is a piece
// of another name, such as "MemoryFormat>)".
func TestPprofsPageInChromium(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && browser == "" {
			browser = found
		}
	}
	goTool, err := exec.LookPath("go")
	if err != nil || browser == "" {
		t.Skip("no chromium or no go command: scripts/install.sh test installs chromium")
	}
	file := os.Getenv("VRAMPROF_PPROF") // to be looked at, with VRAMPROF_SCREENSHOTS
	if file == "" {
		_, write := pprofOf(t, reporttest.TorchStacks())
		file = write("page.pb.gz", reporttest.TorchSnapshot())
	}
	url := servePprof(t, goTool, file) + "/flamegraph"
	page := func(args ...string) string {
		args = append([]string{"--headless", "--disable-gpu", "--user-data-dir=" + t.TempDir(), "--window-size=1400,900"}, args...)
		if os.Getuid() == 0 {
			args = append(args, "--no-sandbox")
		}
		text, err := exec.Command(browser, append(args, url)...).Output()
		if err != nil {
			t.Fatalf("%s %v: %v", browser, args, err)
		}
		return string(text)
	}
	if folder := os.Getenv("VRAMPROF_SCREENSHOTS"); folder != "" {
		page("--screenshot=" + filepath.Join(folder, "pprof-flame.png"))
	}
	var boxes []string
	for _, m := range regexp.MustCompile(`class="boxtext"[^>]*>([^<]*)<`).FindAllStringSubmatch(page("--dump-dom"), -1) {
		boxes = append(boxes, html.UnescapeString(m[1]))
	}
	if os.Getenv("VRAMPROF_PPROF") == "" {
		for _, want := range []string{"root", "<module>", "Trainer.step", "Block.forward", "Linear.forward", "[before attach: pytorch allocated]"} {
			if !slices.Contains(boxes, want) {
				t.Errorf("no box %q in %q", want, boxes)
			}
		}
	}
	for _, name := range boxes {
		if strings.Count(name, "(") != strings.Count(name, ")") || strings.Count(name, "<") != strings.Count(name, ">") || strings.HasPrefix(name, "c10::") {
			t.Errorf("a box is named %q", name)
		}
	}
}

// servePprof starts pprof's web page and returns its address.
func servePprof(t *testing.T, goTool, file string) string {
	t.Helper()
	cmd := exec.Command(goTool, "tool", "-n", "pprof")
	tool, err := cmd.Output()
	if err != nil {
		t.Fatalf("go tool -n pprof: %v", err)
	}
	cmd = exec.Command(strings.TrimSpace(string(tool)), "-http=127.0.0.1:", "-no_browser", file)
	cmd.Env = append(os.Environ(), "PPROF_BINARY_PATH="+t.TempDir(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		cmd.Process.Kill()
		cmd.Wait()
	})
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if m := regexp.MustCompile(`on (http://\S+)`).FindStringSubmatch(said); m != nil {
			return m[1]
		}
	}
	t.Fatalf("pprof says %q", said)
	return ""
}
