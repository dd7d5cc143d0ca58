// What all pages say, in German.

export default {
  common: {
    blocked: "Diese Seite darf {place} nicht aufrufen, darum kommt Ihr Telefon hier nicht weiter. An Ihrem Netz liegt es nicht. Sagen Sie es der Person, die Sie eingeladen hat: Der Betreiber der Plattform muss diese Adresse in den Einstellungen von SP bei `phone_connect` eintragen.",
    kgc: "Die Schlüsselstelle (KGC) teilt die Schlüssel aus: Solange sie das tut, oder wenn sie behielte, was sie vernichten muss, könnte sie alles lesen; zusammen mit der Plattform kann sie jeden Durchschnitt lesen, bis niemand mehr beitreten kann.",
    language: "Sprache",
    notKnown: "–",
    notNow: "Nicht jetzt",
    nothing: "noch nichts",
  },
  shell: {
    skip: "Zum Inhalt springen",
    views: "Ansichten",
    table: "Dasselbe als Tabelle",
    status: "der Dienst antwortete mit Status {status}",
  },
  state: {
    running: "läuft",
    paused: "angehalten",
    finished: "fertig",
    cancelled: "abgebrochen",
    settled: "abgerechnet",
    open: "offen",
    closed: "geschlossen",
    weighed: "geprüft",
    rewarded: "vergütet",
    aborted: "abgebrochen",
    pending: "ausstehend",
    confirmed: "bestätigt",
    rejected: "abgelehnt",
    unknown: "ungewiss",
    paid: "bezahlt",
  },
};
