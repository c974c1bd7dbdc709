// SPDX-License-Identifier: Apache-2.0

package ledger

// warn adds a sentence to the warnings of all later snapshots, once. After 256 different ones, a
// last one reports that there were more.
func (l *Ledger) warn(text string) {
	if _, known := l.warned[text]; known {
		return
	}
	if l.quotas[tableWarnings].Used() >= maxWarnings {
		text = moreWarnings
	} else {
		l.quotas[tableWarnings].Take()
	}
	l.addWarning(text, none)
}

// warnOf is warn for a sentence about a process, which has a share of the warnings.
func (l *Ledger) warnOf(pid uint32, text string) {
	n, ok := l.byPID[pid]
	of, known := l.warned[text]
	switch {
	case !ok:
		l.warn(text)
	case known && of != none:
		l.warned[text] = n // it stays as long as the newest of its processes
	case known:
	case l.room(tableWarnings, &l.procs[n]):
		l.hold(tableWarnings, &l.procs[n])
		l.addWarning(text, n)
	default:
		l.addWarning(moreWarnings, none)
	}
}

const moreWarnings = "there were more warnings"

func (l *Ledger) addWarning(text string, of uint32) {
	if _, known := l.warned[text]; !known {
		l.warned[text] = of
		l.warnings = append(l.warnings, text)
	}
}
