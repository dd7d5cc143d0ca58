#!/bin/sh
# Makes the trial's folders once: settings, certificates and tokens of every role, with a database for each.
set -eu
target=${CAMPAIGN:-/campaign}
[ ! -e "$target/sp/settings.toml" ] || exit 0
made=$(mktemp -d)
crowdfl init "$made/campaign" --kgc-host "${KGC_HOST:-kgc}" --sp-host "${SP_HOST:-sp}" --csp-host "${CSP_HOST:-csp}" ${INIT_OPTIONS:-}
for role in kgc sp csp; do
  sed -i \
    -e "s|^# listen = .*|listen = \"${LISTEN:-0.0.0.0}\"|" \
    -e "s|^# database = .*|database = \"$(echo "$DATABASE_URL" | sed "s|ROLE|$role|")\"|" \
    "$made/campaign/$role/settings.toml"
done
for role in kgc csp requester sp; do # SP last: its settings say that all is there
  mkdir -p "$target/$role"
  cp -a "$made/campaign/$role/." "$target/$role/"
  chmod 0700 "$target/$role"
  [ -z "${OWNER:-}" ] || chown -R "$OWNER" "$target/$role"
done
rm -rf "$made"
