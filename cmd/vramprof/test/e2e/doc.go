// SPDX-License-Identifier: Apache-2.0

// Package e2e contains the end-to-end tests: the real command with real uprobes, on programs that
// use the fake CUDA libraries. They need root.
package e2e
