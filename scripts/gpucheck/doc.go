// SPDX-License-Identifier: Apache-2.0

// Package gpucheck tests the bundle of gpu-check.sh, which users attach to public issues.
package gpucheck
