// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"reflect"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger/chunks"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// TestOpeningsKnowEveryFieldOfTheBooks: whoever adds a field to the books decides here whether an
// opening carries it. Fields after a bar are not carried: they follow from others, are of the books
// that are made from the opening, or belong to processes that an opening leaves out.
func TestOpeningsKnowEveryFieldOfTheBooks(t *testing.T) {
	for of, known := range map[reflect.Type]string{
		reflect.TypeFor[Ledger](): "session gone lost procs ended purgeAt gpus" +
			" | byPID alive numbers ofUser opening carrying openedAt follows",
		reflect.TypeFor[session](): "quotas exports stats warnings warned sampling rate newest opened firstUsage" +
			" | options users archive limiter observer heldBlocks listedBlocks",
		reflect.TypeFor[process]():       "driver older oom stacksLost |",
		reflect.TypeFor[driver]():        "contexts undo physical failures bareFailures exported owners |",
		reflect.TypeFor[contexts]():      "poolSet primaries releases objects strays crowded |",
		reflect.TypeFor[poolSet]():       "gpuMap pools selected own atEnd | noPools poolOf",
		reflect.TypeFor[gpuMap]():        "torch devices misnamed readings system |",
		reflect.TypeFor[torch]():         "heap tensors blockList freeRuns asleep allocator |",
		reflect.TypeFor[heap]():          "member sites totals peak graphs endings walks olderFreed | unused siteOf classes recent live entries high pages clients purged archived unsized past",
		reflect.TypeFor[member]():        "Process held beyond | session number user left",
		reflect.TypeFor[undo]():          "lastFree released |",
		reflect.TypeFor[Process]():       "PID Comm Exe Begin End Replaced OwnRoot User Lost Deduced Folded Workload | Devices Ordinals Beyond OOM PeakBytes PeakTime Totals Started",
		reflect.TypeFor[Workload]():      "Container Pod Namespace PodContainer Actor Job Rank LocalRank WorldSize |",
		reflect.TypeFor[runningTotal]():  "Total low high rounding |",
		reflect.TypeFor[Total]():         "Device Kind PeakBytes PeakTime | LiveObjects LiveBytes AllocObjects AllocBytes",
		reflect.TypeFor[site]():          "siteKey allocObjects allocBytes track inside peak oldest early ended segment bare free evicted crowded presumed | number summed liveObjects liveBytes liveSquares first last total sum high",
		reflect.TypeFor[siteKey]():       "stack context device kind space class api |",
		reflect.TypeFor[entry]():         "address size time site extra | prev next",
		reflect.TypeFor[sitePeak]():      "objects bytes number |",
		reflect.TypeFor[reading]():       "uuid order model first last peak firstLive lastLive present settled began settledAt firstAt taken atPeak excess |",
		reflect.TypeFor[excess]():        "low high live known |",
		reflect.TypeFor[deviceLive]():    "device kind bytes rounding |",
		reflect.TypeFor[usagePeak]():     "last taken lastLive number |",
		reflect.TypeFor[tensors]():       "device halvings reading since now olderFreed first changes returned peak livePeak atPeak atUsage outside contradicted unbooked open untraced traced lost phases | live freed sampled atHigh",
		reflect.TypeFor[tensorReading](): "taken reported allocated reserved olderFreed classes | live freed",
		reflect.TypeFor[sampleSince]():   "classes |",
		reflect.TypeFor[toldTotals]():    "time allocated reserved live known begun liveKnown |",
		reflect.TypeFor[firstReport]():   "time allocated reserved driver seen final |",
		reflect.TypeFor[siteLive]():      "site bytes |",
		reflect.TypeFor[segmentChange](): "time site bytes freed |",
		reflect.TypeFor[returned]():      "address bytes time |",
		reflect.TypeFor[tellPeak]():      "now number |",
		reflect.TypeFor[pool]():          "handle device kind latest reserve threshold destroyed created chunks | objects used inUse",
		reflect.TypeFor[rounding]():      "known most |",
		reflect.TypeFor[chunks.Set]():    "seen kept | ends live count",
		reflect.TypeFor[primary]():       "context device references whole orphaned |",
		reflect.TypeFor[objects]():       "live sites greens derived |",
		reflect.TypeFor[objectSite]():    "stack api made before evicted crowded device kind | live bytes",
		reflect.TypeFor[driverObject]():  "time bytes context site |",
		reflect.TypeFor[physical]():      "handles last mappings | memories",
		reflect.TypeFor[handle]():        "memory references |",
		reflect.TypeFor[memory]():        "learns | handles mappings",
		reflect.TypeFor[target]():        "memory time |",
		reflect.TypeFor[lastFree]():      "entry endings space outcome |",
		reflect.TypeFor[released]():      "handle held ended |",
		reflect.TypeFor[memoryOf]():      "number entry learns |",
		reflect.TypeFor[endedMapping]():  "mapping of |",
		reflect.TypeFor[exported]():      "size owner |",
		reflect.TypeFor[owner]():         "process stack api |",
		reflect.TypeFor[failureKey]():    "siteKey result |",
		reflect.TypeFor[Failure]():       "Count Bytes LastBytes LastTime Crowded | Process Stack API Kind Device Result",
		reflect.TypeFor[stray]():         "key time context tid |",
		reflect.TypeFor[asleep]():        "ranges woken lost seen |",
		reflect.TypeFor[sleeper]():       "start end time device older placed inside |",
		reflect.TypeFor[woken]():         "asleep time device bytes |",
		reflect.TypeFor[freeRun]():       "device bytes |",
		reflect.TypeFor[blockList]():     "blocks freed time |",
		reflect.TypeFor[walks]():         "list sites blocks older open |",
		reflect.TypeFor[Walked]():        "Time Took Failure Problems Held Allocators Waste | Process Left Saved",
		reflect.TypeFor[Held]():          "Holder Bytes Storages Older InMotion Driver | Lasted",
		reflect.TypeFor[Holder]():        "Device Path Frames Class Also Container Containers Entries Found Retention Parts Thing Many |",
		reflect.TypeFor[WalkTotals]():    "Device Allocated Held Older HeldOlder Excess ExcessOlder | Unreported",
		reflect.TypeFor[openWalk]():      "time allocators freed given |",
		reflect.TypeFor[freedEntry]():    "site weight size |",
		reflect.TypeFor[heldSite]():      "live parts | held",
		reflect.TypeFor[heldBlock]():     "address size holder |",
		reflect.TypeFor[olderSet]():      "held gone blocks |",
		reflect.TypeFor[olderBlock]():    "address size holder rank gone |",
		reflect.TypeFor[highest]():       "bytes time |",
		reflect.TypeFor[peakMark]():      "highest number torch device more |",
		reflect.TypeFor[OOM]():           "Time Bytes Stack API Kind Device Count |",
		reflect.TypeFor[Release]():       "Objects Bytes Time | Process Cause",
		reflect.TypeFor[Stats]():         "Events Lost UnmatchedFrees Reused Evicted UnknownSizes Stacks NoStack Missing Truncated Torn OutOfMemory Folded | LostFor LostBy StacksBy Cost",
		reflect.TypeFor[quota.Quota]():   "size limit | used",
		reflect.TypeFor[losses]():        "events stacks homeless |",
		reflect.TypeFor[gpuList]():       "list used read |",
		reflect.TypeFor[usedMarks]():     "list step |",
		reflect.TypeFor[forgotten]():     "Forgotten sums | gpus",
		reflect.TypeFor[Forgotten]():     "Before Processes Failures FailedBytes OutOfMemory Peaks HighestPeak Sums |",
		reflect.TypeFor[ForgottenSum]():  "UUID Kind Host AllocObjects FreeObjects AllocBytes FreeBytes |",
	} {
		fields := map[string]bool{"|": true}
		for i := range of.NumField() {
			fields[of.Field(i).Name] = true
		}
		for _, name := range strings.Fields(known) {
			if !fields[name] {
				t.Errorf("%s has no field %s any more", of, name)
			}
			delete(fields, name)
		}
		for name := range fields {
			t.Errorf("%s.%s: does Ledger.Opening carry it?", of, name)
		}
	}
}
