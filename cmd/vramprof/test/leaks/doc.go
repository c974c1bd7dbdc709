// SPDX-License-Identifier: Apache-2.0

// Package leaks tests the leak verdict: it runs the programs of testdata/leaks under the tracer.
// That needs root; a stored run can be judged again without it.
package leaks
