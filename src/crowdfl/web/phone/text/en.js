// What the phone's page says, in English.

export default {};
