// SPDX-License-Identifier: Apache-2.0

package sequence

// StacksInUse calls add with the stacks that the books refer to, in several turns: see
// ledger.Ledger.StacksInUse.
func (s *Sequencer) StacksInUse(add func(id uint64)) {
	for from := 0; ; {
		tx := s.Begin()
		from = tx.ledger.StacksInUse(from, add)
		tx.Done()
		if from == 0 {
			return
		}
	}
}
