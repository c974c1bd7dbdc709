// SPDX-License-Identifier: Apache-2.0

// Package leaks holds the test of the leak verdict: the programs of
// testdata/leaks under the tracer. It needs root; what a run of it saw can be judged again without.
package leaks
