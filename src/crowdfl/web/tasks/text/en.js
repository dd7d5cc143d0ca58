// What the list of campaigns says, in English.

export default {
  tasks: {
    title: "Campaigns that you can join",
    recruits: "The platform itself lets people into these campaigns and names the other servers: in each it could be everybody else, so that no number of people protects you from it.",
    none: "No campaign takes people from this list now.",
    notLoaded: "The list could not be loaded. Try again in a minute.",
    nobody: "Somebody who gives no name",
    rounds: { one: "{count} round.", other: "{count} rounds." },
    unpaid: "No rewards.",
    budget: "{amount} in each round, for all together.",
    places: { one: "{count} place left.", other: "{count} places left." },
    look: "Look, and join",
    program: "For the CrowdFL program, not for phones: task {task}",
  },
};
