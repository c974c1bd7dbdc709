// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestTheDriverIsSuspendedWhileNoProcessUsesCUDA lets simulated minutes pass.
func TestTheDriverIsSuspendedWhileNoProcessUsesCUDA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		// after checks how often NVML is suspended and read in some seconds after do.
		after := func(what string, do func(), seconds, suspended, readings int) {
			t.Helper()
			synctest.Wait()
			before := m.driver
			do()
			time.Sleep(time.Duration(seconds) * time.Second)
			synctest.Wait()
			if s, r := m.driver.suspended-before.suspended, m.driver.readings-before.readings; s != suspended || r != readings {
				t.Errorf("%s: suspended %d times and read %d times in %d s, want %d and %d", what, s, r, seconds, suspended, readings)
			}
		}
		time.Sleep(500 * time.Millisecond) // between two ticks
		nothing := func() {}
		after("nothing uses CUDA", nothing, 60, 0, 60)
		after("nor after a minute", nothing, 600, 1, 1)
		after("a process uses CUDA", func() { m.introduce(7, View{}) }, 120, 0, 120)
		after("it has ended", func() { m.Forget(7) }, 60, 0, 60)
		after("a minute ago", nothing, 60, 1, 1)
		after("an untraced one maps CUDA", func() {
			m.driver.usage = []ledger.Usage{{PID: 9, UUID: "GPU-1", Bytes: 1}}
			m.Wake()
		}, 120, 0, 121)
		suspend := func() {
			if err := m.Suspend(ctx); err != nil {
				t.Error(err)
			}
		}
		after("it is asked for", suspend, 120, 1, 60)
		after("it is asked for, and another process begins", func() { suspend(); m.Wake(); synctest.Wait(); m.Wake() }, 10, 1, 11)
		suspend()
		after("it ends while suspended", cancel, 1, 0, 0)
		<-done
	})
}
