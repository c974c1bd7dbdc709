# SPDX-License-Identifier: Apache-2.0
# Completion of vramprof for fish: vramprof itself lists the words. File names are the default.
function __vramprof_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c vramprof -a '(__vramprof_complete)'
