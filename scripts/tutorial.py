# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/tutorial.md in the shell of demo.sh --shell, and writes their outputs
and pictures. See tutorial.sh."""
import os, re, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
PAGE = os.path.join(ROOT, "docs", "tutorial.md")
PICTURES = os.path.join(ROOT, "docs", "tutorial")
END = "--- end of %d ---"
PORT = 18080


class Shell:
    """The shell of demo.sh, told by its standard input."""

    def __init__(self):
        environment = dict(os.environ, COLUMNS="80", PYTHONDONTWRITEBYTECODE="1")
        self.process = subprocess.Popen([os.path.join(ROOT, "scripts", "demo.sh"), "--shell"], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.count = 0

    def run(self, command):
        """Returns what a command prints. Ends the program if the shell ends."""
        self.count += 1
        end = END % self.count
        self.process.stdin.write("%s\nstatus=$?; printf '\\n%%s\\n' '%s'\n" % (command, end))
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.rstrip("\n") == end:
                break
            lines.append(line)
        else:
            sys.exit("tutorial.sh: the shell ended in: %s\n%s" % (command, "".join(lines)))
        return "".join(lines).removesuffix("\n")

    def must(self, command):
        text = self.run(command)
        status = self.run('echo "$status"').strip()
        if status != "0":
            sys.exit("tutorial.sh: %s ended with %s:\n%s" % (command, status, text))
        return text

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def photograph(url, name, size):
    picture = os.path.join(PICTURES, name)
    subprocess.run(["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1", "--virtual-time-budget=6000",
                    "--window-size=%d,%d" % size, "--screenshot=" + picture, url], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    subprocess.run(["pngquant", "--force", "--ext=.png", "--strip", "128", picture], check=True)


def top(shell, folder):
    """Photographs vramprof top in a terminal of 100 columns."""
    shell.must("tmux -L vramprof-tutorial new-session -d -x 100 -y 28 vramprof top -p $training")
    time.sleep(25)
    shell.must("tmux -L vramprof-tutorial capture-pane -e -p >%s/top.ansi; tmux -L vramprof-tutorial send-keys q" % folder)
    with open(folder + "/top.ansi", "rb") as screen:
        page = subprocess.run(["aha", "--black"], stdin=screen, capture_output=True, check=True, text=True).stdout
    page = page.replace("</head>", "<style>body{margin:12px} pre{font:15px/18px 'DejaVu Sans Mono',monospace}</style></head>")
    with open(folder + "/top.html", "w") as file:
        file.write(page)
    photograph("file://%s/top.html" % folder, "top.png", (930, 540))


def page(shell, folder):
    photograph("file://%s/.cache/tutorial/before.html" % ROOT, "page.png", (1200, 900))


def pprof(shell, folder):
    shell.run("go tool pprof -no_browser -http=localhost:%d before.pb.gz >/dev/null 2>&1 & pprof=$!" % PORT)
    time.sleep(5)
    photograph("http://localhost:%d/ui/flamegraph?si=inuse_space&f=main" % PORT, "pprof.png", (1000, 300))
    shell.run("kill $pprof")


TAKE = {"top.png": top, "page.png": page, "pprof.png": pprof}
PART = re.compile(r"^```console\n(.*?)^```\n|^!\[.*?\]\(tutorial/(\S+?)\)\n", re.MULTILINE | re.DOTALL)


def main():
    with open(PAGE) as file:
        text = file.read()
    os.makedirs(PICTURES, exist_ok=True)
    shell = Shell()
    shell.must("true")  # after what demo.sh prints

    def renew(match):
        if match[2]:
            with tempfile.TemporaryDirectory() as folder:
                TAKE[match[2]](shell, folder)
            return match[0]
        block = ""
        for line in match[1].splitlines():
            if line.startswith("# "):
                print(line, file=sys.stderr)
                output = shell.must(line[2:]).strip("\n")
                block += line + "\n" + (output + "\n" if output else "")
        return "```console\n%s```\n" % block

    text = PART.sub(renew, text)
    shell.end()
    with open(PAGE, "w") as file:
        file.write(text)


main()
