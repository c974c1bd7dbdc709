#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# inside.sh STEP…: runs in each kernel as init's only child. Each step ends with a line "RESULT STEP
# ok|failed SECONDS".
#   check      vramprof check, which must find nothing missing
#   refused    vramprof check, which must name lockdown=confidentiality and end with 4
#   how        which mechanisms of the kernel are used
#   verifier   the kernel loads all programs, within its limits
#   running    attaches to a running C and a running Python program, and detaches
#   command    traces a command of each from its first call
#   later      notices a program that starts later by its mappings
#   first      arm64: which first instructions of functions the kernel simulates or steps
#   threads    four threads that preempt each other have their own stacks
#   marked     stacks are whole across pages that NUMA balancing has marked
#   memory     maps use as much kernel memory as "vramprof check" computes; for test-memory.sh
#   warnings   the kernel has logged no warning
export FAKECUDA_DIR=/fake VRAMPROF=/t/vramprof PYTHONDONTWRITEBYTECODE=1 VRAMPROF_TEST_SLOWNESS=4
cd /t || exit 1
uptime() { cut -d. -f1 /proc/uptime; }
# test PROGRAM TEST: runs one Go test and fails if it did not run.
test_of() { "/t/$1" -test.v -test.count=1 -test.run "^$2\$" 2>&1 | tee /tmp/out; grep -q "^--- PASS: $2" /tmp/out; }

step() {
  case $1 in
    check) /t/vramprof check ;;
    refused)
      /t/vramprof check >/tmp/out 2>&1
      [ $? = 4 ] && grep 'fail  lockdown .*confidentiality' /tmp/out
      ;;
    how) test_of tracer.test TestHowTheKernelIsUsed ;;
    verifier) test_of tracer.test TestKernelTakesAllPrograms ;;
    running) test_of e2e.test TestRunningCAndPythonAreTracedTogether ;;
    command) test_of e2e.test TestRecordedCommandOfCAndPythonIsTracedFromItsFirstCall ;;
    later) test_of e2e.test TestLaterProgramIsTracedAfterASecond ;;
    first) test_of tracer.test TestFirstInstructionsAreSimulatedOrStepped ;;
    threads) test_of e2e.test TestPreemptedThreadsGetTheirOwnStacks ;;
    marked) test_of tracer.test TestStacksAreWholeAcrossMarkedPages ;;
    memory) test_of tracer.test TestKernelSaysThatMapsTakeWhatIsComputed ;;
    warnings) ! dmesg | grep -A 25 -E 'WARNING: |BUG: |Oops' ;;
    *) echo "no step $1"; false ;;
  esac
}

echo "BOOTED $(uname -r) $(uptime)"
status=0
for s in "$@"; do
  begin=$(uptime)
  if step "$s"; then result=ok; else result=failed status=1; fi
  echo "RESULT $s $result $(($(uptime) - begin))"
done
exit $status
