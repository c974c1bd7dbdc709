// SPDX-License-Identifier: Apache-2.0

package workload

import "strings"

// actor extracts from the title of a Ray worker what it runs: "Trainer" from "ray::Trainer.step" or
// "ray::Trainer", the class of an actor, and "load" from "ray::load", the function of a task. A
// title of other programs, and of a worker that waits for its first task, has none.
func actor(title string) string {
	name, ok := strings.CutPrefix(title, "ray::")
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(name, "::") // "Trainer.step::Exiting"
	name, _, _ = strings.Cut(name, "(")  // older: "Trainer.step()"
	if strings.HasPrefix(name, "IDLE") { // also IDLE_SpillWorker
		return ""
	}
	const local = "<locals>." // a function within another: "main.<locals>.load"
	if i := strings.LastIndex(name, local); i >= 0 {
		name = name[i+len(local):]
	}
	name, _, _ = strings.Cut(name, ".")
	return clean(name)
}
