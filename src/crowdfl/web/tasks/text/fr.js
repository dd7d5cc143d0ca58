// Ce que dit la liste des campagnes, en français.

export default {
  tasks: {
    title: "Campagnes où vous pouvez participer",
    recruits: "La plateforme elle-même fait entrer les gens dans ces campagnes et nomme les autres serveurs : dans chacune, elle pourrait être tous les autres, et aucun nombre de personnes ne vous protège d’elle.",
    none: "Aucune campagne ne prend de personnes de cette liste maintenant.",
    notLoaded: "La liste n’a pas pu être chargée. Réessayez dans une minute.",
    nobody: "Une personne qui ne donne pas de nom",
    rounds: { one: "{count} tour.", many: "{count} de tours.", other: "{count} tours." },
    unpaid: "Pas de rémunération.",
    budget: "{amount} à chaque tour, pour tous ensemble.",
    places: { one: "Encore {count} place.", many: "Encore {count} de places.", other: "Encore {count} places." },
    look: "Regarder et participer",
    program: "Pour le programme CrowdFL, pas pour les téléphones : tâche {task}",
  },
};
