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
        "self.task = self.task.counting(self.cohort(cohort).judged)",
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
        "protocols/common/steps.py",
        "not least <= len(payload) <= most",
        OF_SIZE + "[equal weights-3]",
    ),
    off(
        "entries of a list",
        "protocols/common/steps.py",
        "self.count is not None and not self.count.fits(_length(value), of)",
        OF_SIZE + "[no checks-1]",
        KEYED + "test_a_field_of_another_size_is_refused[lanes]",
    ),
    off(
        "the length of a field",
        "protocols/common/steps.py",
        "not self.each.fits(_length(entry), of)",
        OF_SIZE + "[no checks-2]",
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
    without("the sizes of an upload", SHARES + "upload.py", "require_fields(UPLOAD, body, Facts.most(shape))", BAD),
)
MANIFEST_CHECKS = (
    off("names in order", MANIFESTS, "list(names) != sorted(set(names))", MANIFEST),
    off("strangers", MANIFESTS, "strangers", MANIFEST + "[a stranger]"),
    off("enough people", MANIFESTS, "not least <= len(names) <= most", MANIFEST + "[too few]"),
    off("the payment", MANIFESTS, "manifest.payment != shape.payment", MANIFEST + "[another payment]"),
    off("the task", MANIFESTS, "manifest.task != shape.spec.name", MANIFEST + "[another task]"),
    off(
        "cohorts that are dealt for",
        MANIFESTS,
        "not 1 <= manifest.cohort <= manifest.cohorts <= settings.most_cohorts",
        ALTERED + "[no checks-1]",
    ),
    without("signatures", MANIFESTS, "run_work(backend, SignedEntries(rows, manifest.place))", MANIFEST),
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
UPLOADS = (
    off(
        "an altered upload",
        SHARES + "upload.py",
        "share_digest(body.salt, body.samples, body.shares) != body.digest",
        BAD + "test_what_was_altered_on_the_way_is_refused",
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
        "services/apps/sp_uploads.py",
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
        "protocols/common/paid.py",
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
        "_hash_of((message.sums, message.total)) != record.opened",
        READERS,
    ),
    off(
        "seals that are not the record's",
        SHARES + "average.py",
        "tuple(map(sha256, message.seals)) != record.seals",
        READERS,
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
        HARDENED + "shape.py",
        "before is not None and not self._is_done(records, number, before, participants)",
        KEYED + "test_a_step_of_a_round_that_has_not_begun_is_refused",
    ),
    off(
        "a round that has ended",
        HARDENED + "shape.py",
        "now.ended",
        ORDER + "test_a_round_that_has_ended_or_does_not_exist_is_answered_no_more[shown-3]",
    ),
    off(
        "one request for a message",
        HARDENED + "shape.py",
        "taken is not None and (taken.asked != asked or taken.is_done)",
        ORDER + "test_a_step_is_answered_to_one_request_alone[shown-3]",
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
MONEY = (
    off(
        "a second claim at CSP",
        "protocols/claims.py",
        "before is not None and before.claim != name",
        CLAIMS + "test_one_claim_of_each_participant_is_attested",
    ),
    off(
        "a second claim at SP",
        "protocols/claims.py",
        "claim.participant in self.paid",
        CLAIMS + "test_a_claim_is_paid_once",
    ),
    off("the mask of a claim", "protocols/claims.py", "commit(mask, salt) != kept.commitment", FALSE_CLAIM),
    off("the amount of a claim", "protocols/claims.py", "earned != amount", FALSE_CLAIM),
    off("a round claimed twice", "protocols/claims.py", "len(set(claim.rounds)) != len(claim.rounds)", FALSE_CLAIM),
    without(
        "the signature of a claim",
        "protocols/claims.py",
        "verify(participants[claim.participant], claim.statement, claim.signature)",
        CLAIMS + "test_the_signature_covers_everything",
    ),
    off(
        "another claim's attestation",
        "protocols/claims.py",
        "attestation.claim != _digest(claim)",
        CLAIMS + "test_an_attestation_of_another_claim_is_refused",
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
        "(None if row is None else _round(row)) != known",
        RECORD + "test_of_two_processes_one_sets_the_record",
    ),
    off(
        "masks of another process",
        "roles/sp/csp_link.py",
        "sp.record != durable",
        RECORD + "test_of_two_processes_with_masks_of_their_own_the_second_sends_nothing",
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
        "hashlib.sha256(reply).digest() != digest",
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

MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "steps of CSP": STEPS_OF_CSP,
    "sizes": SIZES,
    "manifests": MANIFEST_CHECKS,
    "bounds": BOUNDS,
    "uploads": UPLOADS,
    "sums": SUMS,
    "hardened": KEYED_CHECKS,
    "money": MONEY,
    "writes": WRITES,
}
"""By what they are about."""
