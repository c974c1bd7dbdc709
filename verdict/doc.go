// SPDX-License-Identifier: Apache-2.0

// Package verdict says of each site whether it leaks, and why.
package verdict
