#!/bin/sh
# g++ with AddressSanitizer and UndefinedBehaviorSanitizer, for `make test-sanitized`. What is only
# read as assembly text (to count instructions), or asked about, is compiled as always.
plain="${TREMULA_PLAIN_CXX:-g++}"
sanitizers="-fsanitize=address,undefined -fno-sanitize=alignment -fno-omit-frame-pointer -g1"
for argument in "$@"; do
  case "$argument" in
    -fsanitize-coverage=*|-S|-E|-dump*|--version|-v|-print-*|-Q) exec "$plain" "$@" ;;
    -c) is_object=yes ;;
  esac
done
if [ -n "$is_object" ]; then exec "$plain" "$@" $sanitizers; fi
# Linked without the default libraries, so that a missing symbol is an error.
exec "$plain" "$@" $sanitizers -lasan -lubsan
