// Until protocol/errors.js has these.

export class CrowdFLError extends Error {
  passes = false;

  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

export class SettingsError extends CrowdFLError {}
export class UnsupportedTask extends CrowdFLError {}
export class DataMalformed extends CrowdFLError {}
export class ModelMismatch extends CrowdFLError {}
export class NothingToContribute extends CrowdFLError {}
export class Cancelled extends CrowdFLError {}
