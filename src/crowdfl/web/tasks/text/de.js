// Was die Liste der Kampagnen sagt, auf Deutsch.

export default {
  tasks: {
    title: "Kampagnen, bei denen Sie mitmachen können",
    recruits: "Die Plattform lässt die Leute in diese Kampagnen selbst herein und nennt die anderen Server: In jeder könnten alle anderen sie selbst sein, so dass keine Zahl von Leuten Sie vor ihr schützt.",
    none: "Zurzeit nimmt keine Kampagne Leute aus dieser Liste.",
    notLoaded: "Die Liste konnte nicht geladen werden. Versuchen Sie es in einer Minute wieder.",
    nobody: "Jemand ohne Namen",
    rounds: { one: "{count} Runde.", other: "{count} Runden." },
    unpaid: "Keine Vergütung.",
    budget: "{amount} in jeder Runde, für alle zusammen.",
    places: { one: "Noch {count} Platz.", other: "Noch {count} Plätze." },
    look: "Ansehen und mitmachen",
    program: "Für das CrowdFL-Programm, nicht für Telefone: Aufgabe {task}",
  },
};
