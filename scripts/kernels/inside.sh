#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# inside.sh STEP…: what runs in each kernel, as init's only child. Each step ends with a line "RESULT STEP ok|failed SECONDS".
#   check      vramprof check, which must find nothing missing
#   refused    vramprof check, which must name lockdown=confidentiality and end with 4
#   how        which ways of the kernel are used
#   verifier   the kernel takes all programs, within its limits
#   running    a C and a Python program that run are traced, and let go
#   command    a command of both is traced from its first call
#   later      a program that starts later is noticed by its mappings
#   threads    four threads that preempt one another get their own stacks
#   memory     maps take as much of the kernel's memory as "vramprof check" computes; for scripts/test-memory.sh
#   warnings   the kernel itself has not complained
export FAKECUDA_DIR=/fake VRAMPROF=/t/vramprof PYTHONDONTWRITEBYTECODE=1 VRAMPROF_TEST_SLOWNESS=4
cd /t || exit 1
uptime() { cut -d. -f1 /proc/uptime; }
# test PROGRAM TEST: one Go test, which must have run.
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
    running) test_of e2e.test TestRunningCAndPythonAreTracedTogetherAndLetGoClean ;;
    command) test_of e2e.test TestRecordedCommandOfCAndPythonIsTracedFromItsFirstCall ;;
    later) test_of e2e.test TestProgramThatStartsLaterIsPickedUpAndWholeAfterASecond ;;
    threads) test_of e2e.test TestThreadsThatPreemptOneAnotherGetTheirOwnStacks ;;
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
