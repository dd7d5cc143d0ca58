// Lo que dice la lista de campañas, en español.

export default {
  tasks: {
    title: "Campañas en las que puede participar",
    recruits: "La propia plataforma admite a la gente en estas campañas y nombra los otros servidores: en cada una, todos los demás podrían ser ella, así que ningún número de personas le protege de ella.",
    none: "Ninguna campaña admite ahora a gente de esta lista.",
    notLoaded: "No se pudo cargar la lista. Pruebe otra vez dentro de un minuto.",
    nobody: "Alguien que no da su nombre",
    rounds: { one: "{count} ronda.", many: "{count} de rondas.", other: "{count} rondas." },
    unpaid: "Sin pago.",
    budget: "{amount} en cada ronda, para todos juntos.",
    places: { one: "Queda {count} plaza.", many: "Quedan {count} de plazas.", other: "Quedan {count} plazas." },
    look: "Ver y participar",
    program: "Para el programa CrowdFL, no para teléfonos: tarea {task}",
  },
};
