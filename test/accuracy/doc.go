// SPDX-License-Identifier: Apache-2.0

// Package accuracy measures how right vramprof is, and fails where it is less right than is stated.
package accuracy
