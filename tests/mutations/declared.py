"""The mutations: each switches one check off, or swaps two writes, and names the tests near it that must fail then.

`old` stands once in the file; when the code moves on, a mutation that no longer finds its place fails by name.
"""

from dataclasses import dataclass
from typing import NamedTuple

SHARES, HARDENED = "protocols/shares/round/", "protocols/hardened/"
_HERE = "tests/protocols/shares/"
WALK, SP, CSP = _HERE + "test_walk.py::", _HERE + "test_deviating_sp.py::", _HERE + "test_deviating_csp.py::"
BAD, CHECKS, COHORTS = _HERE + "test_bad_input.py::", _HERE + "test_checks.py::", _HERE + "test_cohorts.py::"
KEYED, ORDER, CLAIMS = (
    "tests/protocols/test_walk.py::",
    "tests/protocols/test_order.py::",
    "tests/protocols/test_claims.py::",
)
OUT_OF_PLACE = WALK + "test_a_message_out_of_its_place_is_refused"
OF_SIZE = WALK + "test_a_message_of_another_size_is_refused"
ALTERED = WALK + "test_an_altered_field_is_refused_or_is_the_steps_one_message"
MANIFEST = SP + "test_an_altered_manifest_is_refused_and_the_right_one_still_taken"
FALSE_REPLY, READERS = CSP + "test_sp_takes_no_false_reply", CSP + "test_readers_refuse_what_does_not_fit"
FALSE_CLAIM = CLAIMS + "test_a_false_claim_is_refused_though_its_owner_signs_it"
RECORD = "tests/roles/test_round_record.py::"
RECEIVED, UNUSED = "roles/sp/uploads.py", "tests/roles/test_unused.py::"


class Text(NamedTuple):
    """What is replaced by what."""

    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """One change to one function of the package."""

    name: str
    file: str  # below the package
    old: str
    new: str
    tests: tuple[str, ...]


def off(name: str, file: str, check: str, *tests: str) -> Mutation:
    """A check that never refuses: `if CHECK:` becomes `if False:`."""
    return Mutation(name, file, f"if {check}:", "if False:", tests)


def without(name: str, file: str, line: str, *tests: str) -> Mutation:
    """A statement that is not there."""
    return Mutation(name, file, line, "pass", tests)


def instead(name: str, file: str, text: Text, *tests: str) -> Mutation:
    return Mutation(name, file, text.old, text.new, tests)


RECORDS, MANIFESTS = SHARES + "csp_records.py", SHARES + "manifest.py"
LISTED = "protocols/common/manifest.py"
WORDS = "tests/protocols/test_round_records.py::"
OF_CERTIFIED = ORDER + "test_a_manifest_is_of_certified_people_who_have_signed_for_this_round"
STEPS_OF_CSP = (
    off("transcript", RECORDS, "message.transcript != self.now.said", OUT_OF_PLACE + "[equal weights-3]"),
    off("number of the step", RECORDS, "message.step != self.now.step + 1", OUT_OF_PLACE + "[equal weights-3]"),
    off(
        "one request for a step",
        RECORDS,
        'self.now.asked not in (b"", asked)',
        SP + "test_csp_takes_one_manifest_a_round",
    ),
    off(
        "a round that is over",
        RECORDS,
        "self.round is not None and self.round.is_over",
        WALK + "test_a_request_that_was_answered_gets_its_answer_again_and_no_other[no checks-2]",
        OF_SIZE + "[equal weights-3]",
    ),
    off(
        "a round that a later one has passed",
        RECORDS,
        "self.number < self.task.latest",
        SP + "test_a_later_manifest_ends_earlier_rounds_that_had_none",
    ),
    off(
        "a base that is spent",
        RECORDS,
        "manifest.base in self.spent",
        SP + "test_a_sum_that_was_sent_is_the_only_one_for_its_model",
    ),
    off(
        "the base of the last record",
        RECORDS,
        "manifest.base != self.base",
        SP + "test_a_manifest_of_uploads_to_another_model_is_refused",
    ),
    instead(
        "spending a base",
        RECORDS,
        Text("spent=(*self.task.spent, place.base))", "spent=self.task.spent)"),
        SP + "test_a_sum_that_was_sent_is_the_only_one_for_its_model",
    ),
    without(
        "counting bits that no record names",
        RECORDS,
        "self.task = self.task.counting(kept.judged)",
        SP + "test_whose_bits_were_shown_in_rounds_without_a_record_is_looked_at_no_more",
    ),
    instead(
        "comparing what was read and not written",
        "protocols/records.py",
        Text("for place in look.read.keys() | look.written.keys():", "for place in look.written.keys():"),
        SP + "test_two_rounds_to_one_model_give_one_sum",
        "tests/storage/test_sql.py",
    ),
    off(
        "the answer of another process",
        "storage/sql.py",
        "find(c, [t.answers.c.blob], task=task, request=request).first() is not None",
        "tests/storage/test_sql.py",
    ),
    off(
        "a manifest of another round",
        SHARES + "csp.py",
        "manifest.number != number",
        SP + "test_manifests_are_of_the_rounds_of_the_task_and_of_their_request",
    ),
    off("the cohort that is due", SHARES + "csp.py", "manifest.cohort != due", ALTERED + "[two cohorts-1]"),
    without(
        "a name in two cohorts",
        SHARES + "csp.py",
        "tally.require_new(manifest.names, manifest.cohorts)",
        COHORTS + "test_csp_refuses_a_name_of_an_earlier_cohort_after_a_restart_too",
    ),
    off(
        "a name in two cohorts, by the tally",
        MANIFESTS,
        "twice",
        COHORTS + "test_csp_refuses_a_name_of_an_earlier_cohort_after_a_restart_too",
    ),
    without("the end of a round", SHARES + "csp.py", "state.finish(Phase.ENDED)", OF_SIZE + "[equal weights-3]"),
    off(
        "the end of a void round",
        SHARES + "csp.py",
        "run.is_void",
        SP + "test_bits_that_were_not_committed_to_void_the_round_by_csps_word",
    ),
    instead(
        "a word on a failure after bits were shown",
        SHARES + "csp.py",
        Text("or step < shown_in(self._shape):", "or True:"),
        SP + "test_a_csp_whose_machine_fails_once_it_has_seen_bits_says_so_with_its_signature",
    ),
)
SIZES = (
    off(
        "the size of a payload",
        "protocols/steps.py",
        "not least <= len(payload) <= most",
        OF_SIZE + "[equal weights-3]",
    ),
    off(
        "entries of a list",
        "protocols/steps.py",
        "self.count is not None and not self.count.fits(_length(value), of)",
        OF_SIZE + "[no checks-1]",
        KEYED + "test_a_field_of_another_size_is_refused[lanes]",
    ),
    off(
        "the length of a field",
        "protocols/steps.py",
        "not self.each.fits(_length(entry), of)",
        OF_SIZE + "[no checks-2]",
    ),
    without(
        "the sizes of a claim",
        "protocols/steps.py",
        "self.require_message(found, of)",
        CLAIMS + "test_a_field_that_is_longer_than_declared_is_refused",
        "tests/roles/test_fixed_pay.py::test_whom_a_round_asks_goes_by_names_as_long_as_declared",
    ),
    without(
        "the sizes of a place to be paid",
        "protocols/claims.py",
        "PLACE.require_message(note, self.facts)",
        "tests/roles/test_unclaimed.py::test_csp_keeps_the_newest_place_that_its_owner_has_signed_and_says_so",
    ),
    instead(
        "the guard of CSP's program",
        "protocols/shares/circuits/program.py",
        Text("return self.course.asked(self._heard)", "return self._heard"),
        OF_SIZE + "[equal weights-2]",
    ),
    instead(
        "the length of CSP's answer",
        "protocols/shares/circuits/program.py",
        Text("return self.course.answered((yield self.course.asked(mine)))", "return (yield self.course.asked(mine))"),
        CSP + "test_sp_takes_no_answer_of_another_length",
    ),
    without(
        "the guard of the sum",
        SHARES + "csp.py",
        "OFFER.require_message(offer, sum_facts(self._shape, self.place.number, members))",
        OF_SIZE,
    ),
    without("the sizes of CSP's part of the sum", SHARES + "sp.py", "OFFER.require_answer(reply, facts)", FALSE_REPLY),
    without(
        "the guard of hardened",
        HARDENED + "csp.py",
        "steps.require(self._shape, message, len(now.participants) if now is not None and now.participants else None)",
        KEYED + "test_a_field_of_another_size_is_refused[lanes]",
    ),
    without("the sizes of an upload", SHARES + "upload.py", "require_fields(fields, body, Facts.most(shape))", BAD),
)
MANIFEST_CHECKS = (
    off("names in order", LISTED, "list(names) != sorted(set(names))", MANIFEST),
    off("strangers", LISTED, "strangers", MANIFEST + "[a stranger]"),
    off("enough people", LISTED, "not least <= len(names) <= most", MANIFEST + "[too few]"),
    off(
        "one reference for a round",
        RECORDS,
        "self.round is not None and manifest.reference_digest != self.round.reference",
        _HERE + "test_reference.py::test_all_cohorts_of_a_round_are_compared_with_one_reference",
    ),
    off("the payment", MANIFESTS, "manifest.payment != shape.payment", MANIFEST + "[another payment]"),
    off("the task", MANIFESTS, "manifest.task != shape.spec.name", MANIFEST + "[another task]"),
    off(
        "cohorts that are dealt for",
        MANIFESTS,
        "not 1 <= manifest.cohort <= manifest.cohorts <= settings.most_cohorts",
        ALTERED + "[no checks-1]",
    ),
    off(
        "more people than an average may be of",
        MANIFESTS,
        "len(self.names) + len(names) > self.shape.spec.settings.most_in_round",
        COHORTS + "test_csp_refuses_more_people_in_all_cohorts_than_an_average_may_be_of",
    ),
    off(
        "seals of nobody",
        SHARES + "sp.py",
        "not set(reply.broken) <= {*manifest.names, *([REQUESTER_NAME] if manifest.reference else ())}",
        CSP + "test_sp_takes_no_word_of_csps_about_a_seal_of_nobody",
    ),
    off(
        "CSP's record of another round or model",
        SHARES + "average.py",
        "(record.task, record.number, record.base) != (place.task, place.number, place.base)",
        FALSE_REPLY,
    ),
    without("signatures", LISTED, "run_work(backend, SignedEntries(entries))", MANIFEST),
    without("signatures of shares", MANIFESTS, "require_signed(entries, backend)", MANIFEST),
    off(
        "CSP's verdict",
        MANIFESTS,
        'replace(verdict, signature=b"") != verdict_on(manifest, members)',
        CSP + "test_sp_takes_no_verdict_on_others_than_it_has_computed",
    ),
    without(
        "the signature of a verdict", MANIFESTS, "verify(csp_key, verdict.statement, verdict.signature)", FALSE_REPLY
    ),
)
BOUNDS = (
    instead(
        "a reflected commitment",
        SHARES + "checks.py",
        Text('b"crowdfl accept 1" + bytes([index]) +', 'b"crowdfl accept 1" +'),
        CHECKS + "test_csp_cannot_copy_sps_commitment",
    ),
    off(
        "CSP's commitment",
        SHARES + "checks.py",
        "not hmac.compare_digest(bound, _commitment(CSP, inputs.context, theirs))",
        FALSE_REPLY,
        CHECKS,
    ),
    off(
        "SP's commitment",
        SHARES + "checks.py",
        "not hmac.compare_digest(bound, _commitment(SP, inputs.context, theirs))",
        SP + "test_bits_that_were_not_committed_to_void_the_round_by_csps_word",
        ALTERED + "[equal weights-5]",
    ),
    off(
        "lanes that cannot be used",
        SHARES + "checks.py",
        "not is_usable",
        CHECKS + "test_lanes_made_unusable_end_the_round_before_anything_is_compared",
    ),
    instead(
        "cohorts by chance",
        MANIFESTS,
        Text("sorted(names, key=lambda who: sha256(seed + who.encode())) if count > 1 else list(names)", "list(names)"),
        COHORTS + "test_nobody_chooses_who_is_checked_with_whom",
    ),
)
PIECES, LEAVES = "tests/http/test_uploads.py::", "tests/crypto/test_leaves.py"
OWN_FILES = "tests/crypto/test_own_files.py::"
LARGE = "tests/http/test_large_models.py::"
UPLOADS = (
    off(
        "an altered upload",
        SHARES + "upload.py",
        "share_digest(body.salt, body.samples, shape.share_bytes, body.leaves) != body.digest",
        PIECES + "test_leaves_that_nobody_has_signed_are_refused",
    ),
    off(
        "altered shares of an upload",
        SHARES + "upload.py",
        "leaves_of(body.shares) != body.leaves",
        BAD + "test_what_was_altered_on_the_way_is_refused",
    ),
    off(
        "a piece of another place or upload",
        "protocols/uploads.py",
        "leaf.digest() != self.leaves[place : place + LEAF_BYTES]",
        PIECES + "test_a_piece_must_be_the_one_of_its_place_in_this_very_upload",
    ),
    instead(
        "the place of a leaf",
        "crypto/leaves.py",
        Text('_LABEL + total.to_bytes(8, "big") + index.to_bytes(8, "big")', '_LABEL + total.to_bytes(8, "big")'),
        LEAVES,
    ),
    instead(
        "the whole of a leaf",
        "crypto/leaves.py",
        Text('_LABEL + total.to_bytes(8, "big") + index.to_bytes(8, "big")', '_LABEL + index.to_bytes(8, "big")'),
        LEAVES,
    ),
    instead(
        "a head that was not signed",
        "services/http/pieces.py",
        Text("head.digest == self._digest and len(head.data) == self._needs", "True"),
        PIECES + "test_a_piece_must_be_the_one_of_its_place_in_this_very_upload",
    ),
    instead(
        "leaves at the end of an upload that another process began",
        "services/http/pieces.py",
        Text("sum(one.length for one in marks) != size", "False"),
        PIECES + "test_pieces_that_were_altered_on_disk_are_found_out",
    ),
    off(
        "first weights that are too large",
        "roles/limits.py",
        "size > self.initial_bytes",
        LARGE + "test_first_weights_that_are_too_large_are_refused_before_a_byte_of_them_is_taken",
    ),
    off(
        "room for first weights on their way",
        "services/apps/sp_weights.py",
        "sum(others) + total > _MOST * quotas.initial_bytes",
        LARGE + "test_one_requester_has_one_unfinished_file_and_all_together_a_few",
    ),
    off(
        "first weights of another hash",
        "roles/sp/tasks.py",
        "sha256_of(initial).hex() != opened.initial",
        LARGE + "test_weights_that_are_not_the_definitions_are_refused_and_kept_for_nobody",
    ),
    off(
        "a request longer than its task can have",
        "services/apps/csp.py",
        "total > most",
        LARGE + "test_a_request_longer_than_a_task_can_have_is_refused",
    ),
    off(
        "an upload that was altered since this process has checked it",
        "roles/sp/aggregators.py",
        "not known",
        PIECES + "test_pieces_that_were_altered_on_disk_are_found_out",
    ),
    without(
        "a key of each process",
        "crypto/own_files.py",
        "os.register_at_fork(after_in_child=self._begin)",
        OWN_FILES + "test_tags_are_of_one_process",
    ),
    instead(
        "a nonce of each part",
        "crypto/own_files.py",
        Text("next(self._nonces).to_bytes", "(1).to_bytes"),
        OWN_FILES + "test_no_nonce_serves_two_parts",
    ),
    instead(
        "looks bounded whatever the window",
        "roles/sp/tasks.py",
        Text("return _UNEVEN * active / looks_per_second", "return min(_UNEVEN * active / looks_per_second, 50.0)"),
        "tests/roles/test_pacing.py",
    ),
    without(
        "the signature of an upload",
        SHARES + "upload.py",
        "verify(key, upload_statement(body.place, body.who, body.digest, body.sealed), body.signature)",
        BAD,
    ),
    off(
        "an upload of somebody else",
        SHARES + "sp.py",
        "body.who != who",
        BAD + "test_nobody_signs_with_its_own_key_for_another_name",
    ),
    off(
        "a stored upload of somebody else",
        SHARES + "work.py",
        "body.who != self.who",
        BAD + "test_files_of_two_people_that_were_exchanged_are_counted_for_neither",
    ),
    off(
        "an upload that was altered since it was counted",
        SHARES + "work.py",
        "self.counted not in (None, entry)",
        BAD + "test_an_upload_read_again_must_be_the_one_that_was_counted",
    ),
    instead(
        "constant salts of uploads",
        SHARES + "upload.py",
        Text(
            "drawn = secret_bytes(SEED_BYTES), secret_bytes(SALT_BYTES)",
            "drawn = secret_bytes(SEED_BYTES), bytes(SALT_BYTES)",
        ),
        "tests/attacks/test_shares_hashes.py",
    ),
    instead(
        "constant salts of rewards",
        SHARES + "rewards.py",
        Text('expand(seed, b"crowdfl sp reward salts 1", _SALT_BYTES * len(names))', "bytes(_SALT_BYTES * len(names))"),
        "tests/attacks/test_shares_hashes.py",
    ),
    instead(
        "a half piece on a full disk",
        "services/http/pieces.py",
        Text(
            "# a full disk leaves no half piece behind\n                file.truncate(offset)\n                raise",
            "\n                raise",
        ),
        "tests/http/test_uploads.py::test_a_full_disk_leaves_no_half_piece",
    ),
)
SUMS = (
    off(
        "the seeds of a sum",
        SHARES + "average.py",
        "self.bound != sum_name(place, members)",
        SP + "test_the_mask_of_a_sum_serves_one_set_of_people",
    ),
    off(
        "one sum of SP for a base",
        SHARES + "sp.py",
        "spent is not None and (spent != self.round_number or not self._drawn.part)",
        SP + "test_an_honest_sp_sends_one_sum_for_a_model_whatever_became_of_it",
    ),
    off(
        "the seed of a round",
        "protocols/common/mask_seed.py",
        "bound != self.digest",
        "tests/protocols/test_opening.py::test_a_seed_is_bound_to_its_sum",
    ),
    instead(
        "noise",
        SHARES + "average.py",
        Text("if sigma is not None:", "if False:"),
        _HERE + "test_privacy.py::test_an_average_is_the_exact_one_and_both_servers_noise_on_the_sum",
    ),
    off(
        "the record of another sum",
        SHARES + "average.py",
        'replace(record, signature=b"") != _record(place, members, opened, offer, record.masks[1], seals)',
        FALSE_REPLY,
    ),
    off(
        "a sum that is not the record's",
        SHARES + "average.py",
        "_hash_of(len(message.sums), blocks_of(message.sums), message.total) != record.opened",
        READERS,
    ),
    off(
        "seals that are not the record's",
        SHARES + "average.py",
        "tuple(map(sha256, message.seals)) != record.seals",
        READERS,
    ),
    off(
        "samples that honest people cannot have",
        SHARES + "average.py",
        "not len(record.accepted) <= total <= len(record.accepted) * self._shape.widths.max_samples",
        _HERE + "test_average.py::test_no_reader_takes_an_average_of_samples_that_honest_people_cannot_have",
    ),
    off(
        "a seed that is not the record's",
        SHARES + "average.py",
        "len(t) != MASK_BYTES or sha256(t) != mask",
        READERS,
        CSP,
    ),
)
KEYED_CHECKS = (
    off(
        "Jacobi symbol",
        HARDENED + "prifedavg.py",
        "gmpy2.jacobi(message.factor[0].value % n, n) != 1",
        "tests/protocols/test_hidden_total.py::test_repro_no_reply_of_csp_shows_a_parity",
    ),
    off(
        "the step before",
        HARDENED + "order.py",
        "before is not None and not self._is_done(records, number, before, participants)",
        KEYED + "test_a_step_of_a_round_that_has_not_begun_is_refused",
    ),
    off(
        "a round that has ended",
        HARDENED + "order.py",
        "now.ended",
        ORDER + "test_a_round_that_has_ended_or_does_not_exist_is_answered_no_more[shown-3]",
    ),
    off(
        "one request for a message",
        HARDENED + "order.py",
        "taken is not None and (taken.asked != asked or taken.is_done)",
        ORDER + "test_a_step_is_answered_to_one_request_alone[shown-3]",
    ),
    without(
        "who a manifest of hardened names",
        HARDENED + "manifest.py",
        "require_listed(names, keys, settings.min_participants, settings.most_in_round)",
        OF_CERTIFIED,
    ),
    instead(
        "signatures of hardened",
        LISTED,
        Text("run_work(backend, SignedEntries(entries))", "pass"),
        OF_CERTIFIED,
        "tests/attacks/test_hardened.py::test_after_a_cancel_no_round_is_left_to_ask_in",
    ),
    off(
        "a step that the task has not",
        HARDENED + "steps.py",
        "step is None or not step.when.holds(KeyedFacts(shape))",
        KEYED + "test_a_step_that_the_task_has_not_is_refused",
    ),
    off(
        "rewards of a round that pays nothing",
        HARDENED + "order.py",
        "step.name not in after",
        WORDS + "test_a_round_that_pays_nothing_has_no_step_of_rewards",
    ),
    instead(
        "rewards before openings",
        HARDENED + "steps.py",
        Text(
            "for step in steps if pays or step.when is not _REWARDED]",
            "for step in steps if step.when is not _REWARDED]",
        ),
        KEYED + "test_a_step_of_a_round_that_has_not_begun_is_refused",
        WORDS + "test_a_later_manifest_ends_a_round",
    ),
    off(
        "a round that a later one has passed, hardened",
        HARDENED + "order.py",
        "number < task.latest",
        WORDS + "test_a_later_manifest_ends_a_round",
    ),
    off("a cancelled task", HARDENED + "order.py", "task.cancelled", WORDS + "test_a_cancel_ends_all_rounds"),
    instead(
        "a closed round is shown to others",
        HARDENED + "csp.py",
        Text("is_again=before is not None", "is_again=True"),
        WORDS + "test_a_later_manifest_ends_a_round",
    ),
    without(
        "whose cancel it is",
        HARDENED + "closing.py",
        "verify(requester, _statement(task), self.signature)",
        WORDS + "test_a_cancel_ends_all_rounds",
    ),
    off("of what a cancel is", HARDENED + "closing.py", "self.task != task", WORDS + "test_a_cancel_ends_all_rounds"),
    off(
        "the largest payment",
        HARDENED + "csp.py",
        "not 0 <= payment <= largest",
        WORDS + "test_what_a_round_pays_is_fixed_before_anything_is_opened",
    ),
    off(
        "the payment that was agreed",
        HARDENED + "csp.py",
        "agreed is not None and payment != agreed",
        OF_CERTIFIED,
        WORDS + "test_what_a_round_pays_is_fixed_before_anything_is_opened",
    ),
    instead(
        "the end of a round by CSP's word",
        HARDENED + "csp.py",
        Text("ended=now.ended or int(not now.opened)", "ended=now.ended"),
        WORDS + "test_a_round_of_which_nothing_was_opened_is_void_by_csps_word",
    ),
    instead(
        "a piece that was opened",
        HARDENED + "csp.py",
        Text("HardenedRound(), opened=1), number)", "HardenedRound()), number)"),
        WORDS + "test_a_piece_that_was_opened_is_not_void",
    ),
    without(
        "the signature of a record of hardened",
        HARDENED + "record.py",
        "verify(csp_key, record.statement, record.signature)",
        WORDS + "test_a_reader_takes_no_average_without_its_record",
    ),
    off(
        "a record of another round, hardened",
        HARDENED + "record.py",
        "(record.task, record.number) != (task, number)",
        WORDS + "test_a_reader_takes_no_average_without_its_record",
    ),
    off(
        "enough people in a record",
        HARDENED + "profile.py",
        "not found.void and len(set(found.names)) < least",
        WORDS + "test_a_reader_takes_no_average_without_its_record",
    ),
    off(
        "an average of a void round",
        HARDENED + "profile.py",
        "record.void",
        WORDS + "test_a_reader_takes_no_average_without_its_record",
    ),
    off(
        "the record of SP's manifest",
        HARDENED + "profile.py",
        "found.void or (found.manifest, found.names) != (manifest.digest, manifest.participants)",
        WORDS + "test_sp_publishes_under_a_record_of_its_own_manifest_alone",
    ),
    without(
        "who has signed an upload",
        HARDENED + "profile.py",
        "found.require_of(self.task.name, self.round_number, who, self.roster.signing[who])",
        WORDS + "test_an_upload_is_signed_for_one_round_and_by_its_owner",
    ),
    off(
        "one factor",
        HARDENED + "csp.py",
        'now.factor not in (b"", factor)',
        ORDER + "test_one_factor_scales_every_chunk",
    ),
    off(
        "what was opened is in range",
        HARDENED + "csp.py",
        "not worked.fits",
        ORDER + "test_a_failure_after_an_opening_ends_the_round[divisor zero]",
    ),
)
BY_ROUND, UNCLAIMED = "tests/roles/test_claims_by_round.py::", "tests/roles/test_unclaimed.py::"
MONEY = (
    off(
        "an older destination at CSP",
        "protocols/claims.py",
        "kept is not None and (kept.counter, kept.destination) != (counter, destination) and counter <= kept.counter",
        CLAIMS + "test_a_newer_destination_counts_on_and_an_older_one_is_refused",
    ),
    instead(
        "what was attested stands",
        "protocols/claims.py",
        Text("attested[number] if number in attested else earned(place)", "earned(place)"),
        CLAIMS + "test_what_was_attested_stands",
    ),
    off(
        "the payer's word of another claim",
        "protocols/claims.py",
        "(said.task, said.participant, said.currency, said.destination, said.counter) != of_claim",
        CLAIMS + "test_what_csp_says_to_the_payer_is_of_the_claim",
    ),
    off(
        "less to the payer than was attested",
        "protocols/claims.py",
        "said.total < sum(claim.amounts) or said.sequence < len(claim.rounds) + claim.counter",
        CLAIMS + "test_what_csp_says_to_the_payer_is_of_the_claim",
    ),
    off(
        "the payer's word of another person's unclaimed pay",
        "protocols/claims.py",
        "found.participant != who or of != (self.spec.name, who, self.spec.settings.currency)",
        UNCLAIMED + "test_a_csp_that_says_to_the_payer_what_it_does_not_attest_is_not_believed[another person]",
    ),
    off(
        "more to the payer than is unclaimed",
        "protocols/claims.py",
        "len(found.rounds) != len(found.amounts) or said.total != sum(found.amounts)",
        UNCLAIMED + "test_a_csp_that_says_to_the_payer_what_it_does_not_attest_is_not_believed[more]",
    ),
    off(
        "CSP's word about an earlier destination",
        "protocols/claims.py",
        "said != (note.task, note.participant, note.destination, note.counter)",
        UNCLAIMED + "test_csp_keeps_the_newest_place_that_its_owner_has_signed_and_says_so",
    ),
    off(
        "a destination without a number",
        "protocols/claims.py",
        'not is_named and (claim.destination, claim.counter) != (b"", 0)',
        FALSE_CLAIM,
    ),
    off(
        "an amount before the last round",
        "roles/sp/claims.py",
        "found.state not in ENDED or (last is not None and last.state in UNDER_WAY)",
        BY_ROUND + "test_no_amount_is_shown_before_the_last_round_where_it_would_tell_servers_more",
    ),
    instead(
        "an unused upload of a round under way",
        "roles/sp/claims.py",
        Text("is_decided or not is_over or", "is_decided or"),
        BY_ROUND + "test_an_unused_upload_is_claimed_once_its_round_is_over",
    ),
    instead(
        "who was counted is owed nothing besides",
        "roles/sp/claims.py",
        Text("if owed and counted is None:", "if owed:"),
        BY_ROUND + "test_who_was_counted_is_not_paid_for_an_unused_upload_too",
    ),
    instead(
        "a round is booked once",
        "roles/sp/claims.py",
        Text("if n in budgets and n not in before}", "if n in budgets}"),
        BY_ROUND + "test_a_claim_of_some_rounds_forfeits_none_in_whatever_order",
    ),
    off(
        "a dispute is decided once",
        "roles/sp/claims.py",
        "known.state is not DisputeState.OPEN",
        BY_ROUND + "test_what_the_books_do_not_owe_is_disputed_and_the_rest_is_paid",
    ),
    without(
        "a claim after the last day",
        "roles/sp/claims.py",
        "self._core.require_in_time_to_claim(task)",
        BY_ROUND + "test_what_is_booked_is_answered_after_the_last_day_and_after_the_books_are_closed",
    ),
    instead(
        "SP's word ends claims",
        "roles/csp_retention.py",
        Text(" or self._is_all_attested(stored):", " or True:"),
        BY_ROUND + "test_sps_word_ends_steps_and_no_claims",
    ),
    instead(
        "a CSP that was set back keeps claims",
        "roles/csp_retention.py",
        Text("if stored.rolled_back:\n            return False", "if False:\n            return False"),
        BY_ROUND + "test_everyone_attested_ends_it_at_once_but_not_where_csp_was_set_back",
    ),
    instead(
        "no step where claims alone are answered",
        "roles/csp.py",
        Text("stored.state == OVER or (steps and stored.state == CLAIMS)", "stored.state == OVER"),
        BY_ROUND + "test_sps_word_ends_steps_and_no_claims",
    ),
    off("the mask of a claim", "protocols/claims.py", "commit(mask, salt) != kept.commitment", FALSE_CLAIM),
    off("the amount of a claim", "protocols/claims.py", "found != amount", FALSE_CLAIM),
    off(
        "a payment without a destination",
        "roles/sp/payments.py",
        "is_open and state is PaymentState.PAID and not (note or payment.attempts or _has_place(store, payment))",
        "tests/roles/test_pay_to.py::test_everyone_says_the_same_of_money_and_paid_means_paid",
    ),
    off(
        "unclaimed items before the last days",
        "roles/csp.py",
        "self.clock.now() < unclaimed_from(stored.opened, stored.claims_until)",
        "tests/roles/test_unclaimed.py::test_csp_says_nothing_of_what_is_unclaimed_before_the_last_days",
    ),
    off(
        "a round claimed twice",
        "protocols/claims.py",
        "not _grows(claim.rounds) or not _grows(claim.unused) or set(claim.rounds) & set(claim.unused)",
        FALSE_CLAIM,
    ),
    without(
        "the signature of a claim",
        "protocols/claims.py",
        "verify(participants[claim.participant], claim.statement, claim.signature)",
        CLAIMS + "test_the_signature_covers_everything",
    ),
    instead(
        "CSP's signature of what it says to the payer",
        "protocols/claims.py",
        Text(
            "Limits.plain())\n        verify(csp_key, found.statement, found.signature)",
            "Limits.plain())",
        ),
        CLAIMS + "test_what_csp_says_to_the_payer_is_of_the_claim",
    ),
    without(
        "whose place it is",
        "protocols/claims.py",
        "verify(self.participants[who], note.statement, note.signature)",
        UNCLAIMED + "test_csp_keeps_the_newest_place_that_its_owner_has_signed_and_says_so",
    ),
    without(
        "CSP's signature of unclaimed items",
        "protocols/claims.py",
        "verify(self.csp_key, found.attested, found.signature)",
        UNCLAIMED + "test_a_csp_that_says_to_the_payer_what_it_does_not_attest_is_not_believed[more]",
    ),
    without(
        "CSP's signature of an attestation",
        "protocols/claims.py",
        "verify(self.csp_key, attestation.attested, attestation.signature)",
        CLAIMS + "test_a_forged_attestation_is_refused",
    ),
    off(
        "another claim's attestation",
        "protocols/claims.py",
        "attestation.claim != _digest(claim)",
        CLAIMS + "test_an_attestation_of_another_claim_is_refused",
    ),
    instead(
        "the bytes of an unused upload",
        RECEIVED,
        Text("one.outcome = refusal", "one.outcome = None"),
        UNUSED + "test_bytes_that_are_no_upload_earn_nothing[one byte-closed]",
    ),
    off(
        "who is owed hears it again",
        RECEIVED,
        "plan.each_unused and self._is_owed(task, number, who)",
        UNUSED + "test_whoever_is_owed_for_a_round_hears_it_again[over]",
    ),
    off(
        "who is owed is not counted after all",
        RECEIVED,
        "self._is_owed(task, number, who)",
        UNUSED + "test_of_two_requests_at_once_none_is_counted_once_the_other_is_owed",
    ),
    instead(
        "an old device that was counted",
        RECEIVED,
        Text("if sent is not None or self._is_owed", "if self._is_owed"),
        UNUSED + "test_a_new_device_is_not_owed_for_a_round_that_the_old_one_was_counted_in",
    ),
    instead(
        "an old device that is owed",
        RECEIVED,
        Text(" or self._is_owed(task, number, device)", ""),
        UNUSED + "test_a_new_device_is_neither_owed_nor_counted_where_the_old_one_is_owed[False]",
    ),
    instead(
        "a task that ends while an unused upload is checked",
        RECEIVED,
        Text("store.task(task).state in ENDED or ", ""),
        UNUSED + "test_what_ends_while_the_bytes_are_checked_owes_nobody[cancel]",
    ),
    instead(
        "a round that is given up while an unused upload is checked",
        RECEIVED,
        Text(" or store.round(task, number).state is RoundState.ABORTED", ""),
        UNUSED + "test_what_ends_while_the_bytes_are_checked_owes_nobody[give_up]",
    ),
    instead(
        "an unused upload after the last call",
        RECEIVED,
        Text(" and now <= current.last_call(settings))", ")"),
        UNUSED + "test_after_its_last_call_nobody_is_owed",
    ),
    off(
        "a query that nobody has signed",
        "flower/admission.py",
        "any(dict(one) != agreed.query_config for one in shown.values())",
        "lab/lab_tests/audit/test_shares.py::test_a_server_of_flowers_asks_no_questions_of_its_own",
    ),
    instead(
        "what a round began with",
        "roles/sp/rounds.py",
        Text(" and not self._may_come_unused(task, after)", ""),
        UNUSED + "test_what_a_round_began_with_is_kept_until_its_last_call",
    ),
    off(
        "the money of whoever still comes in time",
        "roles/sp/claims.py",
        "not owed and self._may_be_owed(stored, round_)",
        "tests/roles/test_claims_by_round.py::test_repro_a_false_claim_takes_nothing_from_whoever_still_comes_in_time",
    ),
)
_FILES = """        changed = keep_results(blobs, task, changed, rejected=_packed(rejected), **made)
        try:
            with store.transaction():
                if store.task(task).state != state:
                    raise Conflict("the task is not as it was when this step began")
                store.set_round(task, current, changed)
"""
_FILES_AFTER = """        files = {}
        later = type("Later", (), {"put_all": staticmethod(files.update)})
        changed = keep_results(later, task, changed, rejected=_packed(rejected), **made)
        try:
            with store.transaction():
                store.set_round(task, current, changed)
            blobs.put_all(files)
            with store.transaction():
"""
_KEPT = "tests/roles/test_csp_replies.py::"
_GUARD = "tests/shares/test_guard.py::"
WRITES = (
    instead(
        "files before the record that names them",
        "roles/sp/rounds.py",
        Text(_FILES, _FILES_AFTER),
        RECORD + "test_what_a_record_names_is_there_and_events_come_after_it",
        RECORD + "test_a_process_that_dies_before_the_record_has_shown_nothing",
    ),
    off(
        "the task as it was when the step began",
        "roles/sp/rounds.py",
        "store.task(task).state != state",
        RECORD + "test_a_task_that_changed_during_a_step_is_looked_at_again",
    ),
    off(
        "the round as it was when the step began",
        "storage/sql.py",
        "(None if row is None else self._round(task, row._asdict())) != known",
        RECORD + "test_of_two_processes_one_sets_the_record",
    ),
    without(
        "masks of another process",
        "roles/sp/csp_link.py",
        "store.set_sp_record(task, number, durable, sp.record)",
        RECORD + "test_of_two_processes_with_masks_of_their_own_the_second_sends_nothing",
    ),
    off(
        "a note beyond the records",
        "roles/guard.py",
        "beyond := [step for step in notes.steps if step > last]",
        _GUARD + "test_a_csp_whose_records_were_set_back_answers_no_step",
    ),
    off(
        "earlier notes that are missing",
        "roles/guard.py",
        "missing := set(range(1, last)) - notes.steps",
        _GUARD + "test_a_guard_that_was_set_back_stops_every_step_until_it_is_put_back",
    ),
    off(
        "the guard's name",
        "roles/guard.py",
        "found != self._known",
        _GUARD + "test_a_folder_that_is_not_mounted_does_not_look_new",
    ),
    instead(
        "the guard's name before a note",
        "roles/guard.py",
        Text("        self.require_own()\n        try:\n", "        try:\n"),
        _GUARD + "test_a_folder_that_goes_after_the_look_gets_no_note_and_no_end",
    ),
    instead(
        "the guard's name before an end",
        "roles/guard.py",
        Text("            self.require_own()\n            self.blobs.put(f", "            self.blobs.put(f"),
        _GUARD + "test_a_folder_that_goes_after_the_look_gets_no_note_and_no_end",
    ),
    without(
        "SP's note before a request leaves",
        "roles/sp/csp_link.py",
        "ports.guard.note(task, stored.steps + is_new, place.request)",
        _GUARD + "test_nothing_leaves_before_its_note_is_durable",
    ),
    without(
        "CSP's note before an answer leaves",
        "roles/csp.py",
        "self._note(task, steps, said)",
        _GUARD + "test_nothing_leaves_before_its_note_is_durable",
    ),
    off(
        "the reply of another process",
        "roles/sp/csp_link.py",
        "self._core.ports.store.use_reply(place.task, place.number, place.request, digest) != digest",
        _KEPT + "test_another_reply_of_a_second_process_is_not_used",
    ),
    off(
        "a reply that is not the one that was used",
        "roles/sp/csp_link.py",
        "sha256_of(reply) != digest",
        _KEPT + "test_a_reply_that_was_used_and_is_gone_voids_the_round",
    ),
    without(
        "the form of a reply", "roles/sp/csp_link.py", "form.check(reply)", "tests/roles/test_unreadable_replies.py"
    ),
    instead(
        "a lease far in the future",
        "storage/sql.py",
        Text('now < held.until <= times["far"]', "now < held.until"),
        "tests/storage/test_sql.py::test_a_lease_far_in_the_future_keeps_nobody_waiting",
    ),
)

_CHAIN, _ENROLMENT = "tests/roles/test_chain_of_invitations.py::", "tests/roles/test_enrolment.py::"
_INVITATIONS, _JOINED = "documents/invitations.py", "tests/storage/test_sql.py::"
JOINING = (
    without(
        "the requester's signature of an invitation",
        _INVITATIONS,
        "envelope.verify(requester)",
        _CHAIN + "test_a_certificate_of_nobodys_invitation_is_refused[csp]",
    ),
    instead(
        "a recruiter that replaces nobody",
        _INVITATIONS,
        Text("if not recruiter or found.device > 1:", "if not recruiter:"),
        _CHAIN + "test_a_recruiter_invites_in_the_requesters_place_and_replaces_nobody[csp]",
    ),
    instead(
        "the task of an invitation",
        _INVITATIONS,
        Text("if found.task != task:\n        raise InvitationRefused", "if False:\n        raise InvitationRefused"),
        _CHAIN + "test_papers_of_another_task_number_or_device_are_refused[csp]",
    ),
    instead(
        "the task of a certificate",
        _INVITATIONS,
        Text("if found.task != task:\n        raise DocumentError", "if False:\n        raise DocumentError"),
        _CHAIN + "test_papers_of_another_task_number_or_device_are_refused[csp]",
    ),
    instead(
        "the signature of an invitation's key",
        _INVITATIONS,
        Text("cls.open(text, invitation.key)", "cls.read(Envelope.parse(text, cls.kind))"),
        _CHAIN + "test_kgc_puts_no_other_keys_under_an_invitation_that_it_has_seen[csp]",
    ),
    off(
        "what a request was signed for",
        _INVITATIONS,
        "(found.task, found.number, found.device) != (invitation.task, invitation.number, invitation.device)",
        _CHAIN + "test_papers_of_another_task_number_or_device_are_refused[csp]",
    ),
    without(
        "the proof of a signing key",
        _INVITATIONS,
        "verify(found.signing, found.context, found.proof)",
        _CHAIN + "test_kgc_puts_no_other_keys_under_an_invitation_that_it_has_seen[csp]",
    ),
    instead(
        "KGC's signature of a certificate",
        _INVITATIONS,
        Text(
            "Certificate.open(certificate, kgc_key)", "Certificate.read(Envelope.parse(certificate, Certificate.kind))"
        ),
        _ENROLMENT + "test_a_participant_refuses_a_certificate_that_is_not_its_own",
    ),
    off(
        "the name in a certificate",
        _INVITATIONS,
        "found.who != request.identity.who",
        _CHAIN + "test_kgc_puts_no_other_keys_under_an_invitation_that_it_has_seen[csp]",
    ),
    off(
        "the key of a ticket",
        _INVITATIONS,
        "ticket.key.public == ticket.opened.key",
        _ENROLMENT + "test_a_ticket_is_a_secret_that_is_taken_whole_or_not_at_all",
    ),
    off(
        "a certificate of other keys",
        "roles/participant/enrolment.py",
        "(found.identity, found.identity.place, found.device) != (keys.identity, request.number, request.device)",
        _ENROLMENT + "test_a_participant_refuses_a_certificate_that_is_not_its_own",
    ),
    without(
        "CSP's clock",
        "roles/csp.py",
        "require_in_time(definition.plan, found.device, found.expires, self.clock.now())",
        _CHAIN + "test_each_server_looks_at_the_end_of_enrolment_itself[csp]",
    ),
    without(
        "SP's clock",
        "roles/sp/people.py",
        "require_in_time(definition.plan, found.device, found.expires, now)",
        _CHAIN + "test_sp_asks_csp_for_nobody_whose_time_is_over",
    ),
    off(
        "the end of enrolment",
        "roles/records.py",
        "device == 1 and now > plan.enrolment_end",
        _CHAIN + "test_each_server_looks_at_the_end_of_enrolment_itself[csp]",
    ),
    off(
        "the end of an invitation",
        "roles/records.py",
        "now > expires",
        _CHAIN + "test_each_server_looks_at_the_end_of_enrolment_itself[csp]",
    ),
    off(
        "the first keys of an invitation",
        "storage/sql.py",
        "any(row.device == newcomer.device for row in rows)",
        _JOINED + "test_the_first_keys_of_an_invitation_stand[memory]",
    ),
    off(
        "the newest device of a place",
        "storage/sql.py",
        "any(row.device > newcomer.device for row in rows)",
        _JOINED + "test_a_newer_device_takes_the_place_and_no_older_one_comes_back[memory]",
    ),
    off(
        "a device that was replaced",
        "storage/sql.py",
        "known.replaced_by is not None",
        _JOINED + "test_a_newer_device_takes_the_place_and_no_older_one_comes_back[memory]",
    ),
    off(
        "an invitation that KGC has seen used",
        "storage/sql.py",
        "any(row.device == used.device and row.who != used.who for row in rows)",
        _JOINED + "test_an_invitation_serves_one_holder[memory]",
    ),
    off(
        "an older device at KGC",
        "storage/sql.py",
        "any(row.device > used.device for row in rows)",
        _JOINED + "test_an_invitation_serves_one_holder[memory]",
    ),
    without(
        "CSP before SP",
        "roles/sp/people.py",
        "self._tell_csp(task, who, certificate)",
        _CHAIN + "test_sp_confirms_nobody_before_csp_has",
    ),
    without(
        "one device of a person in a round",
        SHARES + "csp.py",
        "self.roster.require_apart([*tally.names, *manifest.names])",
        COHORTS + "test_csp_refuses_two_devices_of_one_person_in_a_round_after_a_restart_too[1]",
    ),
    without(
        "one device of a person in a round of hardened",
        HARDENED + "csp.py",
        "self.roster.require_apart(message.participants)",
        _CHAIN + "test_two_devices_of_one_person_are_never_in_one_round[hardened]",
    ),
    instead(
        "one device of a person in all cohorts",
        SHARES + "csp.py",
        Text("[*tally.names, *manifest.names]", "manifest.names"),
        COHORTS + "test_csp_refuses_two_devices_of_one_person_in_a_round_after_a_restart_too[3]",
    ),
    off(
        "whose device is replaced",
        "roles/requester.py",
        "replaces not in (found.identity.place, found.identity.who)",
        _CHAIN + "test_a_requester_names_whose_device_is_replaced_by_what_that_person_has_signed",
    ),
    off(
        "five devices",
        "roles/requester.py",
        "found.device == MOST_DEVICES",
        _CHAIN + "test_one_place_has_five_devices_at_most_and_never_two_places",
    ),
)

PERSON, ENDS = "roles/participant/participant.py", "tests/protocols/shares/test_ends.py::"
SAID = "tests/attacks/test_words.py::"
PHONES = (
    instead(
        "sending without CSP's word of earlier rounds",
        PERSON,
        Text("return not missing() and not self.has_left", "return not self.has_left"),
        SAID + "test_nothing_is_sent_before_the_record_of_an_earlier_upload_is_here",
    ),
    instead(
        "a record that is read with a receipt alone",
        PERSON,
        Text(
            "if signed is CspWord.ABSENT and not self._has_made(number):",
            "if not holds_receipt(self.blobs, number):",
        ),
        SAID + "test_an_upload_that_was_denied_and_rejected_stops_the_phone[too late]",
    ),
    instead(
        "a latecomer that a record does not name",
        PERSON,
        Text("if signed is not CspWord.ABSENT or said is SpWord.TAKEN:", "if True:"),
        SAID + "test_an_honest_latecomer_goes_on",
    ),
    without(
        "a record on the way to a later round",
        PERSON,
        "self._heed(earlier, read.standing)",
        SAID + "test_a_rejection_that_is_shown_on_the_way_to_a_later_round_counts",
    ),
    instead(
        "a phone that stops while it looks",
        PERSON,
        Text("return not missing() and not self.has_left", "return not missing()"),
        SAID + "test_a_phone_that_stops_while_it_looks_sends_nothing_more",
    ),
    instead(
        "pay by the record alone",
        PERSON,
        Text(
            "return holds_receipt(self.blobs, number) or self._is_accepted(number)",
            "return holds_receipt(self.blobs, number)",
        ),
        SAID + "test_an_upload_that_was_denied_and_averaged_is_paid_once[equal-too late]",
    ),
    off(
        "what was deleted and averaged",
        PERSON,
        "self._no_reward(number) is Reason.WITHDRAWN",
        SAID + "test_an_upload_that_was_deleted_and_averaged_is_paid",
    ),
    instead(
        "a debt in the phone's book",
        PERSON,
        Text('/unused") and not self._is_accepted(number):', '/unused"):'),
        SAID + "test_a_denied_upload_whose_reward_is_hidden_is_not_claimed_as_unused",
    ),
    off(
        "a second record that is not kept",
        "roles/participant/chain.py",
        "not self.blobs.has(second)",
        SAID + "test_two_records_of_one_round_stop_a_phone_that_keeps_both",
    ),
    instead(
        "a round under way that is given up",
        RECORDS,
        Text("elif not self.round.is_over:", "elif False:"),
        ENDS + "test_the_end_says_whose_bits_were_shown_and_every_later_step_is_refused[5]",
    ),
    instead(
        "the round before one that is given up",
        RECORDS,
        Text("if self.number > self.task.latest and before", "if False and before"),
        ENDS + "test_an_earlier_round_under_way_is_counted_when_a_later_one_is_given_up",
    ),
    off(
        "the place of an end",
        SHARES + "ends.py",
        "(end.task, end.number) != (task, number)",
        ENDS + "test_an_end_that_is_not_csps_word_about_the_round_is_refused[change1]",
    ),
    without(
        "the signature of an end",
        SHARES + "ends.py",
        "verify(csp_key, end.statement, end.signature)",
        ENDS + "test_an_end_that_is_not_csps_word_about_the_round_is_refused[change3]",
    ),
)

PAYS, PAYMENTS, PAYOUT = "roles/payer.py", "tests/roles/test_payer.py::", "roles/sp/payments.py"
PAID, ATTESTED = "tests/storage/test_payments.py::", "tests/roles/test_attested.py::"
PAYOUTS = (
    off(
        "the task of a payment",
        PAYS,
        "definition.task not in record.tasks",
        PAYMENTS + "test_a_task_must_be_one_that_its_requester_has_told",
    ),
    off(
        "the papers of a payment",
        PAYS,
        'definition.task != row["task"]',
        PAYMENTS + "test_papers_of_another_task_or_payer_are_refused",
    ),
    off(
        "the payer of a task",
        PAYS,
        "definition.payer != own",
        PAYMENTS + "test_papers_of_another_task_or_payer_are_refused",
    ),
    off(
        "the task of CSP's key",
        PAYS,
        "appointment.task != definition.task or not appointment.csp",
        PAYMENTS + "test_csps_key_is_the_one_that_a_known_kgc_has_named",
    ),
    off(
        "whom a statement is of",
        PAYS,
        '(said.task, said.participant) != (task, who) or (row["task"], row["participant"]) != (task, who)',
        PAYMENTS + "test_a_person_whom_nobody_invited_is_not_paid",
    ),
    off(
        "the currency of a payment",
        PAYS,
        'said.currency != definition.settings.currency or row["currency"] != said.currency',
        PAYMENTS + "test_another_currency_is_refused_whoever_says_it",
    ),
    off(
        "the newest destination",
        PAYS,
        "destination_name(sealed) != said.destination",
        PAYMENTS + "test_nothing_goes_to_an_older_destination",
    ),
    off(
        "SP's word about unused uploads",
        PAYS,
        "not 0 <= unused <= definition.settings.rounds or not 0 <= word <= unused * most",
        PAYMENTS + "test_unused_uploads_are_paid_on_sps_word_and_marked",
    ),
    off(
        "an older statement",
        PAYS,
        "said.sequence < before.sequence or where[0] < before.counter",
        PAYMENTS + "test_an_older_statement_pays_nothing",
        PAYMENTS + "test_nothing_goes_to_an_older_destination",
    ),
    off(
        "two totals",
        PAYS,
        "said.total < before.total or (is_same and said.total != before.total)",
        PAYMENTS + "test_an_older_statement_pays_nothing",
    ),
    off(
        "two destinations of one counter",
        PAYS,
        "before.key and where[0] == before.counter and where[1] != before.destination",
        PAYMENTS + "test_nothing_goes_to_an_older_destination",
    ),
    off(
        "what was paid before",
        PAYS,
        "in_cents(now.all) == in_cents(before.all)",
        PAYMENTS + "test_one_claim_three_times_is_one_payment",
    ),
    instead(
        "one payment of a person in a list",
        PAYS,
        Text("place not in newest or newest[place].age <= found.age", "True"),
        PAYMENTS + "test_a_list_of_old_and_new_pays_by_the_new_one_alone",
    ),
    instead(
        "the attempt of a payment",
        PAYOUT,
        Text("(now.owner, now.attempts) != (payment.owner, payment.attempts)", "now.owner != payment.owner"),
        PAID + "test_a_late_answer_of_an_earlier_attempt_changes_nothing",
    ),
    instead(
        "the owner of an attempt",
        PAYOUT,
        Text("(now.owner, now.attempts) != (payment.owner, payment.attempts)", "now.attempts != payment.attempts"),
        PAID + "test_a_late_answer_of_another_process_changes_nothing",
    ),
    off(
        "which of several payments",
        PAYOUT,
        "len(unpaid) > 1",
        PAID + "test_a_payment_is_named_by_its_key_where_its_participant_has_several",
    ),
    off(
        "earlier instalments without a payer",
        PAYOUT,
        "not store.task(payment.task).opened.payer",
        PAID + "test_a_payment_is_named_by_its_key_where_its_participant_has_several",
    ),
    off(
        "a sum before claims have ended",
        "roles/csp.py",
        "stored.attested is None",
        ATTESTED + "test_sp_cannot_have_it_signed_while_somebody_can_claim",
    ),
    off(
        "a sum of another task",
        "roles/requester.py",
        "(found.task, found.currency) != (task, self.definition(task).settings.currency)",
        ATTESTED + "test_a_sum_that_this_tasks_csp_has_not_signed_of_it_is_refused",
    ),
    off(
        "a destination that no claim can name",
        "roles/sp/payees.py",
        "_is_paid_out(store, task, who) or (is_over and known.named != destination_name(sealed))",
        "tests/roles/test_pay_to.py::test_it_is_erased_once_its_owner_is_paid_out_and_not_before",
    ),
    off(
        "a payment that has no place to go",
        PAYOUT,
        "waits[payment.task](payment.who)",
        "tests/roles/test_pay_to.py::test_a_payment_waits_for_a_destination_and_goes_to_the_newest_that_a_claim_names",
    ),
    off(
        "a destination of another counter",
        "documents/destination.py",
        "(found.task, found.who, found.counter) != (task, who, str(counter)) or participant_name(found.signing) != who",
        "tests/roles/test_pay_to.py::test_an_sp_that_moves_forges_or_reads_a_destination_is_noticed",
    ),
    off(
        "a backup holds a database that names what was deleted meanwhile",
        "storage/backup.py",
        "whole and not before <= archive.digests.keys()",
        "tests/storage/test_backup.py::test_what_was_never_backed_up_is_not_ready",
    ),
    off(
        "a drill of another platform's backup",
        "services/drill.py",
        "len(set(signs)) > 1 or (all(names) and names[0] != names[1])",
        "tests/cli/test_drill.py::test_a_backup_of_another_platform_is_refused",
    ),
    instead(
        "a role in a drill reaches the bucket of the running one",
        "services/alone.py",
        Text('"s3": None, ', ""),
        "tests/cli/test_drill.py::test_a_role_that_is_alone_keeps_all_in_its_folder_and_has_nobody_to_tell",
    ),
    off(
        "a restore writes wherever the archive says",
        "services/folders/backups.py",
        "place not in (None, named)",
        "tests/cli/test_backup.py::test_a_restore_writes_no_database_that_the_operator_did_not_name",
        "tests/cli/test_backup.py::test_a_restore_writes_no_bucket_that_the_operator_did_not_name",
    ),
    off(
        "the currency of a deposit",
        "roles/sp/deposits.py",
        "currency != meant",
        "tests/roles/test_deposits.py::test_money_in_another_currency_is_refused_by_name",
    ),
    off(
        "what a task pays anybody at most",
        PAYS,
        "said.total > definition.settings.most_earned",
        PAYMENTS + "test_repro_more_than_the_whole_task_pays_anybody_is_refused",
    ),
)

EVIDENCE = (
    instead(
        "rounds that CSP says to have shown nothing of",
        PERSON,
        Text("shown = word.shown or (taken and not unused)", "shown = word.shown"),
        SAID + "test_rounds_count_that_csp_says_to_have_shown_nothing_of",
    ),
    instead(
        "a latecomer of a round that was given up",
        PERSON,
        Text("(taken and not unused)", "not unused"),
        SAID + "test_whoever_came_too_late_for_rounds_that_were_given_up_goes_on",
    ),
    instead(
        "rounds that are opened backwards",
        PERSON,
        Text("if other < number or (other > number and not is_made)", "if other < number"),
        SAID + "test_rounds_that_are_opened_backwards_get_no_uploads_ahead[hardened]",
    ),
    instead(
        "SP's word that there is no bonus",
        PERSON,
        Text("if number != BONUS:\n                raise", "raise"),
        "tests/roles/test_fixed_pay.py::test_repro_sps_word_that_somebody_gets_no_bonus_gives_up_nothing",
    ),
    off(
        "a round's number",
        PERSON,
        "type(number) is not int or not 1 <= number <= self.definition.settings.rounds or number in known",
        SAID + "test_a_round_is_a_number_that_the_task_has_once",
    ),
    instead(
        "a device that has forgotten its upload",
        PERSON,
        Text("if signed is CspWord.ABSENT and not self._has_made(number):", "if not self._has_made(number):"),
        SAID + "test_a_record_counts_for_a_device_that_has_forgotten_its_upload",
    ),
    off(
        "a round that was signed and is shown as unfinished",
        "roles/participant/chain.py",
        'back and status["state"] in ("running", "paused")',
        "tests/attacks/test_shares.py::test_a_platform_that_was_set_back_gets_no_second_upload",
    ),
    off(
        "an end beside a record",
        "roles/participant/chain.py",
        "self.has_record(number)",
        SAID + "test_a_record_and_an_end_of_one_round_are_two_words",
    ),
    off(
        "a task whose guard says that it is over",
        "roles/guard.py",
        "notes.is_over",
        _GUARD + "test_a_small_note_outlives_the_task",
    ),
    off(
        "a note of other contents",
        "roles/guard.py",
        "self.blobs.get(_place(task, step)) != said.encode()",
        _GUARD + "test_a_note_of_something_else_ends_the_task",
    ),
    off(
        "the guard of another database",
        "roles/guard.py",
        "self._name() not in (None, self.store.guard_identity(self._named))",
        _GUARD + "test_a_guard_of_another_database_is_left_alone",
    ),
    off(
        "a CSP that has found that it was set back",
        "roles/csp.py",
        "stored.rolled_back",
        _GUARD + "test_the_operator_gives_a_guard_up[False-csp]",
    ),
    instead(
        "a repeated answer of a CSP that was set back",
        "roles/csp.py",
        Text("self._compare(notes, stored)\n            self.guard.note", "self.guard.note"),
        _GUARD + "test_a_csp_whose_records_were_set_back_answers_no_step[the same-4]",
    ),
    without(
        "the last step, once more",
        "roles/csp.py",
        "require_latest(now, stored)",
        _GUARD + "test_a_step_that_another_process_has_taken_meanwhile_is_counted_beside_it",
    ),
    off(
        "SP's step, once more",
        "roles/sp/csp_link.py",
        "store.task(known.task).steps != known.steps",
        _GUARD + "test_of_two_processes_of_sp_one_counts_a_step",
    ),
    instead(
        "notes of a task without checks",
        "roles/sp/csp_link.py",
        Text("if is_noted else None", "if False else None"),
        _GUARD + "test_an_sp_that_was_set_back_sends_no_second_sum_of_a_task_without_checks",
    ),
    off(
        "a latecomer of a CSP that has forgotten nothing",
        "roles/csp.py",
        "not self._is_set_back(task)",
        _GUARD + "test_a_set_back_csp_is_told_again_of_whoever_came_in_time",
    ),
    instead(
        "a claimant whom a set-back CSP has forgotten",
        "roles/csp.py",
        Text("if not self._is_set_back(task):", "if True:"),
        _GUARD + "test_a_set_back_csp_is_told_again_of_whoever_came_in_time",
    ),
    instead(
        "whom a failing CSP has looked at",
        SHARES + "csp.py",
        Text("judged=manifest.names", "judged=()"),
        SP + "test_a_csp_whose_machine_fails_once_it_has_seen_bits_says_so_with_its_signature",
    ),
)

LAST = "tests/roles/test_ends.py::"
LAST_DAYS = (
    off(
        "a definition whose claims end before its rounds",
        "documents/signed.py",
        "self.claims_until < self.rounds_until",
        LAST + "test_claims_end_after_rounds",
    ),
    off(
        "an extension of another task",
        "documents/signed.py",
        "found.task != definition.task",
        LAST + "test_an_extension_is_of_this_task_and_by_its_csp",
    ),
    off(
        "an extension that is too long",
        "documents/signed.py",
        "not definition.claims_until < self.until <= last",
        LAST + "test_an_extension_is_of_this_task_and_by_its_csp",
    ),
    off(
        "a second extension",
        "roles/csp.py",
        "stored.claims_extended is not None",
        LAST + "test_csp_extends_claims_once_by_the_time_to_claim_at_most_and_before_they_end",
    ),
    off(
        "an extension after the last day",
        "roles/csp.py",
        "now >= definition.claims_until",
        LAST + "test_claims_are_not_extended_after_their_last_day",
    ),
    instead(
        "books that are closed before CSP was asked",
        "roles/sp/settlement.py",
        Text("if now >= stored.attests_until and self._extension.may_come(stored):", "if False:"),
        LAST + "test_sp_asks_for_an_extension_before_it_closes_the_books[False]",
    ),
    off(
        "a claim that is answered again when the books are closed",
        "roles/sp/claims.py",
        "self._ports.store.task(task).state == TaskState.SETTLED",
        LAST + "test_claims_end_on_their_last_day_and_the_books_a_day_later",
    ),
    instead(
        "a reward that SP does not show yet",
        "roles/participant/claims.py",
        Text("            missing = self._missing(status)", "            missing: list[int] = []"),
        "tests/roles/test_restored.py::test_a_receipt_counts_although_sp_says_to_have_lost_the_upload",
    ),
    instead(
        "a deposit that may still be confirmed",
        "roles/sp/settlement.py",
        Text("if any(one.state is DepositState.PENDING for one in self._ports.store.deposits(task)):", "if False:"),
        LAST + "test_books_are_closed_at_once_when_nobody_is_owed_anything",
    ),
    instead(
        "a round that could not be over in time",
        "roles/sp/rounds.py",
        Text("if not self._core.has_time(task):  # nothing", "if False:  # nothing"),
        LAST + "test_no_round_opens_that_could_not_close_and_none_is_extended_past_the_last_day",
    ),
    instead(
        "a round that is extended past the last day",
        "roles/records.py",
        Text(" and longer.fits(settings, until):", ":"),
        LAST + "test_no_round_opens_that_could_not_close_and_none_is_extended_past_the_last_day",
    ),
    instead(
        "CSP's longer answers",
        "roles/csp_retention.py",
        Text("return stored.attests_until", "return stored.opened.rounds_until"),
        LAST + "test_a_pause_ends_with_the_last_day_of_rounds_and_what_was_earned_can_be_claimed",
    ),
    instead(
        "sightings of the last day",
        "roles/retention.py",
        Text("return seen >= _CONFIRMED and self._is_past(stored)", "return self._is_past(stored)"),
        "tests/campaigns/test_ends.py::test_a_clock_that_is_wrong_for_a_while_ends_nothing",
    ),
    instead(
        "a phone that believes anybody's extension",
        "roles/participant/participant.py",
        Text("ClaimsExtension.open_of(shown, self.definition, side.csp_key)", "pass"),
        LAST + "test_csp_extends_claims_once_by_the_time_to_claim_at_most_and_before_they_end",
    ),
    off(
        "a task whose rounds are over",
        "roles/limits.py",
        "now >= definition.rounds_until",
        "tests/roles/test_limits.py::test_a_task_whose_rounds_are_over_is_refused",
    ),
    without(
        "the longest life of a task",
        "roles/limits.py",
        '_require("days until its last day of claims", days, self.days, "max_task_time", less)',
        "tests/roles/test_limits.py::test_a_task_that_lasts_too_long_is_refused_by_both",
    ),
)

OPENED, PAPER = "protocols/paper/claims.py", "tests/attacks/test_paper.py::"
TRICK, LIE = (
    PAPER + "test_sp_asks_nothing_of_its_own_and_the_honest_claim_is_still_attested",
    PAPER + "test_a_false_claim_is_refused_though_its_owner_signs_it",
)
ONCE = PAPER + "test_one_difference_of_a_person_and_round_is_opened_whatever_sp_sends"
SET_BACK = PAPER + "test_a_csp_that_was_set_back_opens_nothing_more"
PAPER_CLAIMS = (
    off("a ciphertext that its owner has not signed for", OPENED, "digest(mu) != claim.shown[place]", TRICK, LIE),
    off("a round that the task has not", OPENED, "not 1 <= number <= self.spec.settings.rounds", LIE),
    instead("an amount above b", OPENED, Text("not self.units.is_payable(claimed) or ", ""), LIE),
    instead(
        "other money than units", OPENED, Text(" or claim.amounts[place] != self.units.millionths(claimed)", ""), LIE
    ),
    without(
        "as many ciphertexts as rounds",
        OPENED,
        "CLAIM.require_message(asked, PaperFacts(self.task, 0, len(claim.rounds)))",
        TRICK,
    ),
    off(
        "another integer of a round",
        OPENED,
        "(kept.mu, kept.claimed) != (claim.shown[place], claim.masks[place])",
        PAPER + "test_what_was_true_of_one_integer_is_not_believed_of_another",
    ),
    without("what was opened is kept", OPENED, "records.put(what, claim.rounds[place], who=who)", ONCE),
    instead("a refusal is kept too", OPENED, Text("if not records.written:", "if True:"), ONCE),
    instead("an answer is given again", OPENED, Text("if kept is None:", "if True:"), ONCE),
    instead("zero alone is attested", OPENED, Text("return [value == 0 for", "return [True for"), LIE),
    instead(
        "a half of another ciphertext",
        OPENED,
        Text("raise MasksDoNotFit(\"SP's", "return [False] * len(places)\n            raise MasksDoNotFit(\"SP's"),
        TRICK,
    ),
    off(
        "SP's half of what it has not served",
        "protocols/paper/profile.py",
        "number not in served or digest(served[number]) != signed",
        PAPER + "test_sp_decrypts_nothing_but_what_it_has_served_to_the_claimant",
    ),
    off(
        "a phone's own bound",
        "protocols/paper/profile.py",
        "not money.is_payable(opened)",
        PAPER + "test_a_phone_claims_nothing_that_no_round_can_pay",
    ),
    off(
        "a reward of no number",
        "protocols/paper/profile.py",
        "not len(found.mu) == len(found.mu_1) == 1",
        PAPER + "test_a_reward_is_one_number",
    ),
    instead(
        "claims that open are noted",
        "roles/csp.py",
        Text("outcome is not None and folder in _NOTED", "outcome is not None and folder == STEPS"),
        SET_BACK,
    ),
    instead(
        "and noted again",
        "roles/csp.py",
        Text("        if folder in _NOTED:\n            notes", "        if folder == STEPS:\n            notes"),
        SET_BACK,
    ),
    instead(
        "a round that was altered costs no other",
        "roles/participant/claims.py",
        Text("isinstance(refusal, WrongAmount) and len(rounds) > 1", "False"),
        PAPER + "test_one_altered_round_costs_no_other",
    ),
    instead(
        "a CSP without claims has no share",
        "protocols/paper/profile.py",
        Text(
            "return replace(PaperBundle.from_bytes(bundle, Limits.plain()), secrets=(0,)).to_bytes()", "return bundle"
        ),
        PAPER + "test_csp_keeps_its_share_for_claims_until_sp_says_that_there_are_no_more",
    ),
)
_RECRUIT = "tests/roles/test_recruiting.py::"
_LISTING, _SQL, _PERSON = "roles/sp/recruiting.py", "storage/sql.py", "roles/participant/participant.py"
_SAME = _RECRUIT + "test_an_owner_says_all_the_same_where_no_noise_hides_anyone"
_FREED = _RECRUIT + "test_a_place_of_which_nothing_came_is_freed_after_a_round"
_KEEPS = _RECRUIT + "test_whoever_was_invited_or_has_sent_once_or_came_during_the_round_keeps_the_place"
_OTHER_KEY = _RECRUIT + "test_a_device_believes_no_place_that_is_not_its_own"
RECRUITING = (
    off(
        "the place of a recruiter's key",
        _INVITATIONS,
        "recruited and found.number != _place_of(found.key)",
        _RECRUIT + "test_sp_replaces_nobodys_device_and_takes_no_place_that_the_requester_keeps",
    ),
    off(
        "a task that says invitations",
        _LISTING,
        "signing is None or not self._is_recruiter(definition)",
        _RECRUIT + "test_sp_gives_nobody_a_place_in_a_task_that_says_invitations",
    ),
    off(
        "a task that recruits by another key",
        "roles/sp/tasks.py",
        'definition.recruiter not in (b"", own)',
        _RECRUIT + "test_a_definition_says_who_recruits_and_sp_takes_no_other",
    ),
    off(
        "a requester as the recruiter",
        "documents/signed.py",
        "definition.recruiter == definition.requester",
        _RECRUIT + "test_a_definition_says_who_recruits_and_sp_takes_no_other",
    ),
    off(
        "all the same",
        _PERSON,
        "definition.recruits and definition.settings.epsilon is None and not self._accepts_all_the_same",
        _SAME,
    ),
    off(
        "a place where SP lets nobody in",
        _PERSON,
        "not definition.recruits",
        _RECRUIT + "test_sp_gives_nobody_a_place_in_a_task_that_says_invitations",
    ),
    off("a place of this device's key", _PERSON, "(found.key, found.device) != (key.public, 1)", _OTHER_KEY),
    off(
        "places in an hour",
        _LISTING,
        "not store.recruit(task, invitation.number, now, self._core.options.max_joins)",
        _RECRUIT + "test_places_are_given_so_many_in_an_hour",
    ),
    instead(
        "the same place once an hour",
        _SQL,
        Text("if find(c, [r.place], task=task, place=place).first() is not None:", "if False:"),
        _RECRUIT + "test_the_same_key_has_one_place_however_often_it_asks",
    ),
    instead(
        "room before a place is given",
        _LISTING,
        Text("if state in NOT_OPEN:", "if False:"),
        _RECRUIT + "test_nobody_joins_after_the_end_or_when_it_is_full",
    ),
    instead(
        "who may lose a place",
        _LISTING,
        Text("return one.recruited and in_time", "return in_time"),
        _KEEPS,
    ),
    instead("who could send in a round", _LISTING, Text("one.joined_at < opened_at", "True"), _KEEPS),
    instead(
        "a round that takes no more",
        _LISTING,
        Text("            return []  # it took no more", "            pass  # it took no more"),
        _RECRUIT + "test_a_round_that_has_all_the_uploads_it_takes_frees_nobody",
    ),
    off(
        "a freed place that others have",
        _SQL,
        "known.freed and find(c, [t.tasks.c.taken], task=task).scalar_one() >= limit",
        _FREED,
    ),
    instead(
        "as many devices as a task can have",
        "roles/csp.py",
        Text(
            "self.store.add_participant(task, participant, places, most)",
            "self.store.add_participant(task, participant, 10**6)",
        ),
        _RECRUIT + "test_sp_gets_no_more_people_into_a_round_than_the_task_has_places_for",
    ),
    off(
        "places of one address",
        "services/http/address_limit.py",
        "len(seen) == self.most",
        "tests/http/test_recruiting.py::test_an_address_waits_until_an_hour_has_passed",
    ),
)
# What a task's definition may say.
DEFINITIONS = (
    instead(
        "a consent has the device's time",
        "roles/participant/participant.py",
        Text("keys_.signing.public, self._platform_time(), language", "keys_.signing.public, self.now(), language"),
        "tests/roles/test_study.py::test_a_consent_has_the_time_of_the_platform_whatever_the_device_s_clock_says",
    ),
    instead(
        "a logo of any size in pixels",
        "settings.py",
        Text("0 < wide <= _WIDEST_LOGO and 0 < high <= _WIDEST_LOGO", "wide > 0 and high > 0"),
        "tests/roles/test_definitions.py::test_who_asks_is_signed_with_its_picture_and_told_before_joining",
    ),
    instead(
        "keys in a person's own data",
        "roles/participant/export.py",
        Text("for name in names if name not in SECRET}", "for name in names}"),
        "tests/cli/test_participant_export.py::test_receipts_records_consent_and_pay_are_written_and_no_secret",
    ),
    off(
        "two averages where servers keep what they learn",
        "settings.py",
        'self.late == UNTIL_PUBLISHED and self.profile != "paper"',
        "tests/protocols/test_settings.py::test_an_average_is_made_again_in_the_paper_alone",
    ),
    off(
        "code that its user has not named",
        "learning/recipe.py",
        "is_code(self.learner) and not learner",
        "tests/learning/test_own_learner.py::test_code_is_run_only_where_the_task_has_it_and_its_user_names_it",
    ),
)
CROWDS, ENGINES = "tests/simulate/test_crowds.py::", "tests/simulate/test_engines.py::"
ALIKE = ENGINES + "test_a_crowd_plays_the_rounds_that_every_role_plays"
CROWD = (
    instead(
        "one server alone has the answer",
        "simulation/crowd_dealing.py",
        Text("if index != SP:", "if False:"),
        ALIKE + "[samples]",
    ),
    instead(
        "SP's sum without who is left out",
        "simulation/crowd_servers.py",
        Text(
            "for who in counted:\n                np.multiply", "for who in counted[:0]:\n                np.multiply"
        ),
        ALIKE + "[samples]",
    ),
    instead(
        "products with references over all rounds",
        "simulation/crowd_servers.py",
        Text("self._sums = RunningSums.read(kept, bits, self._spec.settings.most_devices)", "pass"),
        ALIKE + "[reference]",
    ),
    off(
        "left out for good",
        "simulation/crowd_engine.py",
        "not self.settings.reference",
        CROWDS + "test_who_is_left_out_though_within_the_bounds_takes_no_further_part[False]",
    ),
    off(
        "who evaluates",
        "simulation/parallel.py",
        "chosen is not None and self.person not in chosen",
        CROWDS + "test_a_share_of_the_people_evaluates_drawn_anew[roles]",
    ),
    instead(
        "loaded data goes",
        "simulation/parallel.py",
        Text("self.data = None", "pass"),
        CROWDS + "test_nothing_of_loaded_data_stays",
    ),
    instead(
        "made when it is asked for",
        "simulation/run.py",
        Text("trainers.made if isinstance(self.people, _Loaded) else trainers", "trainers"),
        CROWDS + "test_data_as_a_function_of_the_name_is_loaded_for_who_is_drawn_alone",
    ),
)
A_FORM, UPGRADES = "tests/roles/test_forms.py::", "tests/storage/test_migrations.py::"
FORMS = (
    off(
        "a later form",
        "documents/forms.py",
        "form > newest(kind)",
        A_FORM + "test_an_invitation_file_of_a_later_form_is_refused",
    ),
    off(
        "a field of a later form",
        "documents/forms.py",
        "name in table and not may_be_there",
        A_FORM + "test_form_1_has_no_field_of_form_2",
    ),
    off(
        "a later form of a message",
        "protocols/messages.py",
        "form < _FIRST or (kind == cls.kind and form > cls.form)",
        A_FORM + "test_a_message_of_a_later_form_is_refused_by_name",
    ),
    instead(
        "the form it came in",
        "protocols/messages.py",
        Text("(form := data[4:5][0]) != cls.form", "False"),
        A_FORM + "test_a_message_of_an_earlier_form_is_read_and_its_signature_holds",
    ),
    off(
        "a task that cannot be read",
        "storage/upgrading.py",
        "unreadable and not leave_unread",
        UPGRADES + "test_a_version_that_cannot_read_a_task_changes_nothing",
    ),
    instead(
        "another version's tables",
        "storage/database.py",
        Text("self._is_migrated and (found", "False and (found"),
        UPGRADES + "test_a_process_of_the_old_version_writes_nothing_once_another_has_migrated",
    ),
)
RESTORES = "tests/roles/test_restored.py::"
AGAIN_AVERAGED = "tests/roles/test_averaged_again.py::"
RESTORED = (
    off(
        "what the bank has paid before",
        "roles/sp/instalments.py",
        "left and handed_over(before, new.amount) <= left",
        RESTORES + "test_what_the_bank_has_paid_is_taken_off_however_a_claim_puts_its_rounds_together",
    ),
    instead(
        "a key that the bank knows",
        "roles/sp/instalments.py",
        Text("if payment_key(stored.task, new.who, n) in named}", "if False}"),
        RESTORES + "test_no_cent_is_paid_twice_and_none_is_kept",
    ),
    off(
        "claims that came before the bank was asked",
        "roles/sp/instalments.py",
        "one.owner == BANK or one.state_at(now) in _WAITS",
        RESTORES + "test_claims_that_came_before_the_bank_was_asked_are_taken_off_too",
    ),
    instead(
        "a claim that waits under a key that the bank knows",
        "roles/sp/instalments.py",
        Text("first != one and not", "False and not"),
        RESTORES + "test_whatever_was_paid_and_is_claimed_everyone_has_what_they_earned",
    ),
    instead(
        "an amount that was named too high",
        "roles/sp/instalments.py",
        Text("one.owner == BANK or one.state_at(now)", "one.state_at(now)"),
        RESTORES + "test_too_much_that_was_named_is_corrected_by_naming_it_again",
    ),
    off(
        "a payment that runs while it is named",
        "roles/sp/instalments.py",
        "one.key in paid and one.state_at(now) is PaymentState.RUNNING",
        RESTORES + "test_a_payment_that_runs_is_not_named_before_it_has_ended",
    ),
    instead(
        "a round that came to nothing",
        PAYOUT,
        Text("its or [one for _, _, one in rows[-1:] if not amount]", "its"),
        RESTORES + "test_a_round_that_came_to_nothing_is_paid_with_what_came_before_it",
    ),
    instead(
        "SP's own keys in a payer's answer",
        "cli/office.py",
        Text('_result(row["task"], row["sp_key"]', '_result(row["task"], row["key"]'),
        RESTORES + "test_a_payers_answer_names_payments_as_a_restored_sp_does",
    ),
    instead(
        "the last of a person's payments in a list",
        PAYS,
        Text("newest[place].age <= found.age", "newest[place].age < found.age"),
        PAYMENTS + "test_one_claim_three_times_is_one_payment",
    ),
    instead(
        "a round of several payments",
        "roles/sp/payments.py",
        Text("key=lambda of: _LATEST[of[0]]", "key=lambda of: -_LATEST[of[0]]"),
        RESTORES + "test_a_round_is_paid_for_people_once_all_that_pays_it_is",
    ),
    off(
        "a payer that knows what it has paid",
        "roles/restored.py",
        "paid and store.task(task).opened.payer",
        RESTORES + "test_of_a_payer_that_knows_what_it_has_paid_nothing_is_named",
    ),
    instead(
        "money that a later restore finds returned",
        "roles/restored.py",
        Text('f"before the restore, {returned} in all"', '"before the restore"'),
        RESTORES + "test_money_that_was_returned_is_booked_after_each_restore",
    ),
    instead(
        "a word about rounds that CSP has lost",
        "roles/csp.py",
        Text("folder in _NOTED or is_claim(request, BonusRequest)", "folder in _NOTED"),
        "tests/roles/test_fixed_pay.py::test_a_csp_that_was_set_back_says_of_nobody_who_was_there_in_every_round",
    ),
    instead(
        "sealed bytes that begin as a message",
        "storage/upgrading.py",
        Text("isinstance(value, str) or MESSAGE.items() <= table.c[name].info.items()", "True"),
        "tests/storage/test_migrations.py::test_reading_finds_what_is_of_a_later_form_wherever_it_is_kept",
    ),
    instead(
        "two devices in one average",
        RECEIVED,
        Text(
            "definition.plan.each_unused > 0 or averages_again(definition.settings)", "definition.plan.each_unused > 0"
        ),
        AGAIN_AVERAGED + "test_a_person_with_a_new_phone_counts_once",
    ),
    instead(
        "a late upload that nobody has averaged",
        "roles/sp/people.py",
        Text("round_.state is not RoundState.HELD or not upload.late", "True"),
        AGAIN_AVERAGED + "test_who_withdraws_while_an_average_is_held",
    ),
    instead(
        "who is in the held average",
        "roles/sp/people.py",
        Text("round_.state is not RoundState.HELD or not upload.late", "round_.state is not RoundState.HELD"),
        AGAIN_AVERAGED + "test_who_withdraws_while_an_average_is_held",
    ),
    instead(
        "who may be in the held average",
        "roles/sp/people.py",
        Text("isinstance(sp, HoldsAverage) and sp.holds(held, in_time)", "True"),
        AGAIN_AVERAGED + "test_who_may_be_in_the_first_average_stays_in_it",
    ),
    instead(
        "the last model before its reward",
        "roles/sp/platform.py",
        Text("(RoundState.REWARDED,) if who is None else", "() if False else"),
        AGAIN_AVERAGED + "test_the_requester_gets_the_last_model_once_it_is_rewarded",
    ),
    off(
        "an upload that was acknowledged, begun anew",
        "services/http/pieces.py",
        "anew and file.seek(0, os.SEEK_END)",
        PIECES + "test_beginning_anew_leaves_alone_what_was_acknowledged_or_is_read",
    ),
    off(
        "a file that is gone",
        "services/http/pieces.py",
        "not _is_at(path, file)",
        PIECES + "test_a_piece_that_waited_does_not_go_into_a_file_that_is_gone",
    ),
)
_DEALT, _APPOINTED = "tests/roles/test_dealt.py::", "tests/roles/test_appointments.py::"
TAKING_OVER = (
    instead(
        "whose bundle it is",
        "roles/kgc.py",
        Text("self._require_not_handed_over(stored, role)\n        return", "return"),
        _DEALT + "test_kgc_hands_a_bundle_to_its_own_server_until_that_has_it",
    ),
    instead(
        "whose dealt file it is",
        "roles/kgc.py",
        Text("self._require_not_handed_over(stored, role)\n        count", "count"),
        _DEALT + "test_kgc_deals_a_file_to_its_own_server_and_for_rounds_that_there_are",
    ),
    instead(
        "the definition of another task",
        "roles/csp.py",
        Text("if opened.task != task or", "if"),
        _APPOINTED + "test_csp_takes_no_papers_of_another_task[definition]",
    ),
    instead(
        "the key of another task",
        "roles/csp.py",
        Text("task != task or appointed.task != task:", "task != task:"),
        _APPOINTED + "test_csp_takes_no_papers_of_another_task[key]",
    ),
    without(
        "the key that KGC appointed, at CSP",
        "roles/csp.py",
        "appointed.require_key(profile.csp(opened.spec, bundle, self.tools).fingerprint)",
        _APPOINTED + "test_a_server_takes_no_task_over_with_another_key",
    ),
    without(
        "a file that another process has burnt",
        "roles/csp.py",
        "require_latest(self.store.task(task), stored)",
        _DEALT + "test_a_file_that_another_process_has_burnt_meanwhile_is_not_called_damaged",
    ),
)
_BONUS, _FIXED = SHARES + "bonus.py", "tests/roles/test_fixed_pay.py::"
BONUS = (
    without(
        "the signature of a word about the bonus",
        _BONUS,
        "verify(csp_key, word.statement, word.signature)",
        _FIXED + "test_nobody_takes_another_word_about_the_bonus[signed by SP]",
    ),
    off(
        "a word about the bonus of another task",
        _BONUS,
        "word.task != shape.spec.name",
        _FIXED + "test_nobody_takes_another_word_about_the_bonus[of another task]",
    ),
    instead(
        "whom a round that is over asks",
        SHARES + "csp.py",
        Text("state.require_under_way()\n        if state.round is not None:", "if state.round is not None:"),
        _FIXED + "test_csp_takes_no_step_once_it_has_said_who_gets_it",
        _FIXED + "test_whom_a_round_asks_is_said_before_it_begins",
    ),
    instead(
        "whom a round under way asks",
        SHARES + "csp.py",
        Text("if state.round is not None:\n            raise", "if False:\n            raise"),
        _FIXED + "test_whom_a_round_asks_is_said_before_it_begins",
    ),
    instead(
        "a request for the bonus of another task",
        SHARES + "csp.py",
        Text(
            'if message.task != self._shape.spec.name:\n            raise ProtocolError("a request for the bonus',
            'if False:\n            raise ProtocolError("a request for the bonus',
        ),
        _FIXED + "test_a_request_for_the_bonus_of_another_task_ends_no_rounds_here",
    ),
    instead(
        "a request for unclaimed pay of another task",
        SHARES + "csp.py",
        Text(
            'if message.task != self._shape.spec.name:\n            raise ProtocolError("a request for what is',
            'if False:\n            raise ProtocolError("a request for what is',
        ),
        UNCLAIMED + "test_a_request_for_what_is_unclaimed_of_another_task_attests_nothing_here",
    ),
)
MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "steps of CSP": STEPS_OF_CSP,
    "sizes": SIZES,
    "manifests": MANIFEST_CHECKS,
    "bounds": BOUNDS,
    "uploads": UPLOADS,
    "sums": SUMS,
    "hardened": KEYED_CHECKS,
    "money": MONEY,
    "paper's claims": PAPER_CLAIMS,
    "payouts": PAYOUTS,
    "writes": WRITES,
    "definitions": DEFINITIONS,
    "joining": JOINING,
    "recruiting": RECRUITING,
    "last days": LAST_DAYS,
    "phones": PHONES,
    "evidence": EVIDENCE,
    "crowds": CROWD,
    "forms": FORMS,
    "restores": RESTORED,
    "taking over": TAKING_OVER,
    "bonus": BONUS,
}
"""By what they are about."""
