// SPDX-License-Identifier: Apache-2.0

// bind_function sets what the function of NVML with this name, without a version, calls from now
// on; NULL: it fails. It returns 0 if go-nvml does not call it here.
int bind_function(const char *name, void *function_or_null);
