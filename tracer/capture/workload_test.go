// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"reflect"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestEveryFieldOfAWorkloadIsCaptured finds fields that the file lacks.
func TestEveryFieldOfAWorkloadIsCaptured(t *testing.T) {
	want := ledger.Process{PID: 7, Comm: "python3", Begin: 9}
	fields := reflect.ValueOf(&want.Workload).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetString("value of " + fields.Type().Field(i).Name)
	}
	if got := processOf(inputOf(want).GetProcess()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
