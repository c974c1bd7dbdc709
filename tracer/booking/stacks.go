// SPDX-License-Identifier: Apache-2.0

package booking

// StacksInUse calls add with the stacks that the books refer to, in several turns: see
// ledger.Ledger.StacksInUse.
func (d *Desk) StacksInUse(add func(id uint64)) {
	for from := 0; ; {
		turn := d.Take()
		from = turn.ledger.StacksInUse(from, add)
		turn.Done()
		if from == 0 {
			return
		}
	}
}
