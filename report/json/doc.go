// SPDX-License-Identifier: Apache-2.0

// Package json writes reports as JSON. Sizes are bytes, names ending in _ns are nanoseconds, and
// unknown values are absent. Fields are only added within a version.
package json
