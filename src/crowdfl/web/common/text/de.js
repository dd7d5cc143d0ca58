// What all pages say, in German.

export default {
  common: {
    blocked: "Diese Seite darf {place} nicht aufrufen, darum kommt Ihr Telefon hier nicht weiter. An Ihrem Netz liegt es nicht. Sagen Sie es der Person, die Sie eingeladen hat: Der Betreiber der Plattform muss diese Adresse in den Einstellungen von SP bei `phone_connect` eintragen.",
    language: "Sprache",
    notKnown: "–",
    notNow: "Nicht jetzt",
    nothing: "noch nichts",
  },
};
