# SPDX-License-Identifier: Apache-2.0
# Completion of vramprof for bash: vramprof itself lists the words. File names are the default.
_vramprof() {
  local IFS=$'\n' raw=${COMP_WORDS[COMP_CWORD]} cur word last='' words=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do # bash has "--view=tree" and "cuda:0" as three words
    if [[ ${#words[@]} -gt 1 && ($word == [=:] || $last == [=:]) ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
    last=$word
  done
  cur=${words[-1]}
  COMPREPLY=($(compgen -W "$("${words[0]}" __complete "${words[@]:1}" 2>/dev/null | cut -f 1)" -- "$cur"))
  [[ $raw == [=:] ]] && raw=''
  COMPREPLY=("${COMPREPLY[@]#"${cur%"$raw"}"}") # of which it replaces only the last
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} ]] || COMPREPLY=()
}
complete -o bashdefault -o default -F _vramprof vramprof
