// SPDX-License-Identifier: Apache-2.0

package probeprice

import (
	"errors"
	"os"
	"testing"
)

func TestAFailedAttachIsAnErrorAndDetachesNothing(t *testing.T) {
	broken := errors.New("broken")
	if price, err := Measure(func(*os.File, uint64) (func(), error) { return nil, broken }); price != 0 || !errors.Is(err, broken) {
		t.Errorf("got %v, %v", price, err)
	}
}

func TestAProbeThatIsNotHitHasNoPrice(t *testing.T) {
	detached := make(chan bool)
	price, err := Measure(func(program *os.File, offset uint64) (func(), error) {
		var code [1]byte
		if n, err := program.ReadAt(code[:], int64(offset)); n != 1 {
			t.Errorf("no code at %#x: %v", offset, err)
		}
		return func() { close(detached) }, nil
	})
	if price != 0 || !errors.Is(err, errNotHit) {
		t.Errorf("got %v, %v", price, err)
	}
	<-detached
}

func TestAnAddressInNoFileHasNoOffset(t *testing.T) {
	if offset, err := offsetOf(1); !errors.Is(err, errNotMapped) {
		t.Errorf("got %d, %v", offset, err)
	}
}
