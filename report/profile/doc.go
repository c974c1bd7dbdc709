// SPDX-License-Identifier: Apache-2.0

// Package profile writes ledger snapshots as pprof profiles, reads them back and compares them.
package profile
