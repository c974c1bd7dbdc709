// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/vramprof/vramprof/tracer/clock"
)

// notifier tells systemd how the service is, by sd_notify(3). Without systemd it does nothing. It
// connects once: a confined process may not.
type notifier struct {
	socket net.Conn      // nil: there is no systemd
	every  time.Duration // between signs of life: half of the watchdog's time; 0: no watchdog
	wait   time.Duration // for systemd to read what it was told before; then it is not told
}

func newNotifier() *notifier {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		interval = 0
	}
	n := &notifier{every: interval / 2, wait: time.Second}
	if path := os.Getenv("NOTIFY_SOCKET"); path != "" {
		if socket, err := net.Dial("unixgram", path); err == nil {
			n.socket = socket
		}
	}
	return n
}

func (n *notifier) tell(state string) {
	if n.socket != nil {
		_ = n.socket.SetWriteDeadline(time.Now().Add(n.wait))
		_, _ = n.socket.Write([]byte(state))
	}
}

func (n *notifier) ready()    { n.tell(daemon.SdNotifyReady) }
func (n *notifier) stopping() { n.tell(daemon.SdNotifyStopping) }

// reloading announces a reload, which ready ends.
func (n *notifier) reloading() {
	n.tell(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, clock.Now()/1000))
}

// watch gives signs of life as long as alive reports true, until ctx ends. Without one, systemd
// restarts the service.
func (n *notifier) watch(ctx context.Context, alive func() bool) {
	if n.every == 0 {
		return
	}
	clock.Every(ctx, n.every, func() {
		if alive() {
			n.tell(daemon.SdNotifyWatchdog)
		}
	})
}
